"""Two networks as one: for all devices, and a copy tuned on those with measured times."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from prenet_gnn.network.config import ModelConfig
from prenet_gnn.network.network import TimeGNN, Times


class PairedGNN(nn.Module):
    """Answers for known settings with the mean of both networks, for all others with the first.

    A setting, a device under a framework, is known when training had rows of it. What the second
    network learns of known settings by heart would spoil the first for new devices.
    """

    def __init__(self, general: TimeGNN, known: TimeGNN) -> None:
        """Takes the network for all devices and its copy for known ones."""
        super().__init__()
        self.config = known.config
        self.general, self.known = general, known

    def forward(self, data: Data) -> Times:
        """Seconds of every call and of every graph of a batch; see `TimeGNN.forward`."""
        times: Times = self.general(data)
        rows = (data.latents[:, 0] > 0) & (data.latents[:, 1] > 0)
        if not bool(rows.any()):
            return times
        other: Times = self.known(subset(data, rows))
        merged = {}
        for name, whole in times._asdict().items():
            part, place = getattr(other, name), rows[data.batch] if name == "node" else rows
            # the whole is averaged like the members of an ensemble, in the logarithm
            mean = (whole[place] * part).sqrt() if name == "total" else (whole[place] + part) / 2.0
            merged[name] = whole.clone()
            merged[name][place] = mean
        return Times(**merged)


def subset(data: Data, rows: Tensor) -> Data:
    """The batch with some of its rows only; `rows (G,)` tells which. All graphs stay."""
    calls = rows[data.batch]
    place = torch.cumsum(rows.long(), dim=0) - 1
    by_row = ("device", "run", "phases", "step", "views", "latents", "floor")
    return Data(
        **{name: data[name] for name in ("x", "operator", "work", "count")},
        **{name: data[name][rows] for name in by_row},
        edge_index=data.edge_index,
        edge_attr=data.edge_attr,
        take=data.take[calls],
        batch=place[data.batch[calls]],
        num_nodes=data.num_nodes,
    )


def build_network(config: ModelConfig) -> TimeGNN | PairedGNN:
    """An unfitted network: a pair where known settings have latents of their own."""
    if not config.setting_latents:
        return TimeGNN(config)
    return PairedGNN(TimeGNN(replace(config, setting_latents=0)), TimeGNN(config))
