"""Which devices, hosts and frameworks have a latent of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from prenet_gnn.workload.workload import DEFAULT_FRAMEWORK, Workload


@dataclass(frozen=True, slots=True)
class Latents:
    """Names in the order of the latent tables; position 0 of a table is for all others."""

    devices: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()

    def of(self, device: str, number_format: str, workload: Workload) -> tuple[int, int, int]:
        """Rows of the latent tables in the order of `fields.LATENTS`, 0 where training saw none."""
        return (
            _find(self.devices, device_key(device, number_format)),
            _find(self.hosts, host_key(device, workload)),
            _find(self.frameworks, framework_key(workload)),
        )

    def with_devices(self, devices: Iterable[str]) -> Latents:
        """With latents for more devices."""
        return replace(self, devices=tuple(sorted({*self.devices, *devices})))

    def to_dict(self) -> dict[str, list[str]]:
        """The names as plain data."""
        return {name: list(values) for name, values in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Latents:
        """Builds the tables from plain data."""
        return cls(*(tuple(map(str, data[name])) for name in ("devices", "hosts", "frameworks")))


def _find(names: tuple[str, ...], name: str) -> int:
    try:
        return names.index(name) + 1
    except ValueError:
        return 0


def device_key(device: str, number_format: str) -> str:
    """Name of a device latent: a device computes differently in each number format."""
    return f"{device}|{number_format}"


def framework_key(workload: Workload) -> str:
    """Name of a framework latent: the version, and whether the batch is copied inside the time.

    The second tells apart the protocols of the public benchmarks, which name no version.
    """
    name = workload.framework or DEFAULT_FRAMEWORK
    name = name if name.startswith("torch") else "torch-unknown"
    return f"{name}|{'h2d' if 'h2d' in workload.phases else 'resident'}"


def host_key(device: str, workload: Workload) -> str:
    """Name of a host latent: no source names the machine, so its device stands for it."""
    return f"{device}|{framework_key(workload)}"
