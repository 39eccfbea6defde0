"""Two networks as one: for all devices, and a copy tuned on those with measured times."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from prenet_gnn.encoding.batch import GraphBatch
from prenet_gnn.encoding.fields import LATENTS
from prenet_gnn.network.config import LatentConfig, NetworkConfig
from prenet_gnn.network.latents import LatentSizes
from prenet_gnn.network.network import TimeGNN, build_single
from prenet_gnn.network.readout import Times


class PairedGNN(nn.Module):
    """Answers for known settings with the mean of both networks, for all others with the first.

    A setting, a device under a framework, is known when training had rows of it. What the second
    network learns of known settings by heart would spoil the first for new devices.
    """

    def __init__(self, general: TimeGNN, known: TimeGNN) -> None:
        """Takes the network for all devices and its copy for known ones."""
        super().__init__()
        self.general, self.known = general, known

    def forward(self, batch: GraphBatch) -> Times:
        """Seconds of every call and of every row of a batch; see `TimeGNN.forward`."""
        times: Times = self.general(batch)
        device, host = (LATENTS.of(batch.latents, name) > 0 for name in ("device", "host"))
        rows = device & host
        if not bool(rows.any()):
            return times
        other: Times = self.known(batch.only(rows))
        merged = {}
        for name, whole in times._asdict().items():
            part, place = getattr(other, name), rows[batch.row] if name == "node" else rows
            # the whole is averaged like the members of an ensemble, in the logarithm
            mean = (whole[place] * part).sqrt() if name == "total" else (whole[place] + part) / 2.0
            merged[name] = whole.clone()
            merged[name][place] = mean
        return Times(**merged)


def general_config(config: NetworkConfig) -> NetworkConfig:
    """Settings of the network for all devices, without its copy for known ones."""
    return replace(config, latents=LatentConfig(settings=0))


def build_network(config: NetworkConfig, sizes: LatentSizes) -> TimeGNN | PairedGNN:
    """An unfitted network: a pair where known settings have latents of their own."""
    if not config.latents.settings:
        return build_single(config, sizes)
    return PairedGNN(build_single(general_config(config), sizes), build_single(config, sizes))
