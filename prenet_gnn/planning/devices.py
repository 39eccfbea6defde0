"""Which devices are asked, and what each of them can run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prenet_gnn.catalogue.devices import get_hardware, list_hardware
from prenet_gnn.catalogue.spec import Hardware
from prenet_gnn.errors import ConfigError

if TYPE_CHECKING:
    from prenet_gnn.workload.workload import Workload

# Triton, which torch.compile generates, needs Volta or newer (its own stated minimum)
FIRST_COMPILED_CAPABILITY = 7.0
OPTIONAL_FORMATS = ("tf32", "fp16", "bf16")


def choose_devices(devices: Sequence[str | Hardware] | None) -> list[Hardware]:
    """Looks up devices by name, each once; the whole catalogue if None."""
    if devices is None:
        return list(list_hardware())
    if isinstance(devices, str) or not len(devices):
        raise ConfigError(f"devices must be a list of names, or None for all; not {devices!r}.")
    found = [each if isinstance(each, Hardware) else get_hardware(each) for each in devices]
    return list({device.name: device for device in found}.values())


def unsupported_reason(device: Hardware, workload: Workload) -> str:
    """Says why a workload should not go to a device, or nothing where it can.

    Frameworks emulate formats that a device lacks, at a loss; such a run is no option to offer.
    """
    number_format = workload.precision.removeprefix("amp_")
    if number_format in OPTIONAL_FORMATS and device.stated_peak(number_format) is None:
        return f"{device.name} has no {number_format} arithmetic."
    capability = _cuda_capability(device)
    if workload.compiled and capability is not None and capability < FIRST_COMPILED_CAPABILITY:
        return f"torch.compile needs compute capability 7.0 or newer, {device.name} has less."
    return ""


def _cuda_capability(device: Hardware) -> float | None:
    try:
        return float(device.compute_capability)
    except ValueError:
        return None
