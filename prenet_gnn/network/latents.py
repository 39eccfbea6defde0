"""What the data say of single devices, frameworks and hosts beyond their specifications."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from prenet_gnn.encoding.batch import GraphBatch
from prenet_gnn.encoding.fields import LATENTS, Field, Table
from prenet_gnn.encoding.latents import Latents

# Logarithms of what a device takes longer than its specifications say.
DEVICE_LATENTS = Table(
    "a device's latents",
    [Field(name, transform="log", origin="fitted") for name in
     ("arithmetic", "traffic", "kernels", "loops")],
)  # fmt: skip
# The same for a framework, for the host's dispatch and for the libraries it brings.
FRAMEWORK_LATENTS = Table(
    "a framework's latents",
    [Field(name, transform="log", origin="fitted") for name in
     ("host_forward", "host_backward", "arithmetic", "traffic")],
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LatentSizes:
    """Rows of the latent tables; the first of each stands for all that was not seen."""

    devices: int = 1
    hosts: int = 1
    frameworks: int = 1

    @classmethod
    def of(cls, names: Latents) -> LatentSizes:
        """Room for the names."""
        sizes = (names.devices, names.hosts, names.frameworks)
        return cls(*(len(each) + 1 for each in sizes))


class RowLatents(NamedTuple):
    """What the data say of a row's device, framework and host; zero where nothing is known.

    Shapes:
        `device (G, 4)` and `framework (G, 4)`, logarithms in the order of `DEVICE_LATENTS` and
        `FRAMEWORK_LATENTS`; `host (G, 2)`, forward and backward; `setting (G, S)`, or
        None where the network has none.
    """

    device: Tensor
    framework: Tensor
    host: Tensor
    setting: Tensor | None


class LatentTables(nn.Module):
    """Looks up the latents of every row.

    Shapes:
        `latents (G, LATENTS.width)`, positions, 0 for none -> `RowLatents`
    """

    def __init__(self, sizes: LatentSizes, settings: int) -> None:
        """Starts at zero: every device as its specifications say.

        Args:
            sizes: Rows of the tables.
            settings: Width of what a known device, and it under a framework, change in every call;
                0 for none.
        """
        super().__init__()
        self.device = nn.Parameter(torch.zeros(sizes.devices, DEVICE_LATENTS.width))
        self.host = nn.Parameter(torch.zeros(sizes.hosts, 2))
        self.framework = nn.Parameter(torch.zeros(sizes.frameworks, FRAMEWORK_LATENTS.width))
        if settings:
            self.device_setting = nn.Parameter(torch.zeros(sizes.devices, settings))
            self.host_setting = nn.Parameter(torch.zeros(sizes.hosts, settings))
        self.has_settings = settings > 0

    def forward(self, batch: GraphBatch) -> RowLatents:
        """Latents of every row."""
        places = {name: LATENTS.of(batch.latents, name) for name in LATENTS.names}
        setting = None
        if self.has_settings:
            of_device = _look_up(self.device_setting, places["device"])
            setting = of_device + _look_up(self.host_setting, places["host"])
        return RowLatents(
            device=_look_up(self.device, places["device"]),
            framework=_look_up(self.framework, places["framework"]),
            host=_look_up(self.host, places["host"]),
            setting=setting,
        )


def _look_up(table: Tensor, place: Tensor) -> Tensor:
    """Rows of a latent table, `(G, L)`; zero at position 0, which is all that was not seen."""
    found: Tensor = table[place] * (place > 0)[:, None]
    return found
