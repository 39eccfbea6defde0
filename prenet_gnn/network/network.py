"""The predictor's network, made of blocks: what is swapped for an ablation is a block."""

from __future__ import annotations

from torch import Tensor, nn

from prenet_gnn.encoding.batch import GraphBatch
from prenet_gnn.network.config import NetworkConfig
from prenet_gnn.network.encoder import CallEncoder
from prenet_gnn.network.head import CorrectionHead
from prenet_gnn.network.host import HOSTS
from prenet_gnn.network.latents import LatentSizes, LatentTables
from prenet_gnn.network.physics.calls import Calls
from prenet_gnn.network.physics.roofline import PHYSICS, Roofline
from prenet_gnn.network.readout import Readout, Times
from prenet_gnn.network.step import Step


class TimeGNN(nn.Module):
    """Seconds of calls and rows: physics times learned corrections, added up.

    Each call costs arithmetic, memory traffic and launches; the device's sum and the host's
    dispatch overlap, so the larger of the two decides.

    Shapes:
        `GraphBatch` of G rows -> `Times` of `(G,)`
    """

    def __init__(
        self,
        encoder: CallEncoder,
        latents: LatentTables,
        head: CorrectionHead,
        physics: Roofline,
        host: nn.Module,
    ) -> None:
        """Takes its blocks; as they start, it is a plain roofline model."""
        super().__init__()
        self.encoder, self.latents, self.head = encoder, latents, head
        self.physics, self.host = physics, host
        self.step, self.readout = Step(), Readout()

    def forward(self, batch: GraphBatch) -> Times:
        """Seconds of every call and of every row of a batch."""
        calls, latents = Calls(batch), self.latents(batch)
        factors = self.head(self.encoder(batch), calls, latents)
        found = self.physics(calls, latents)
        node: Tensor = found.arithmetic * factors.arithmetic + found.traffic * factors.traffic
        node = node + found.launches * factors.launches + found.extra
        node = node * (calls.kernels > 0)
        step = self.step(batch, self.physics.kernel_s(batch, latents))
        host_s = self.host(calls, latents, factors.dispatch)
        times: Times = self.readout(calls, node, step, host_s)
        return times


def build_single(config: NetworkConfig, sizes: LatentSizes) -> TimeGNN:
    """An unfitted network of the blocks that a configuration names."""
    settings = config.latents.settings
    return TimeGNN(
        CallEncoder(config.encoder),
        LatentTables(sizes, settings),
        CorrectionHead(config.head, config.encoder.hidden, settings),
        PHYSICS[config.physics.kind](config.physics),
        HOSTS[config.host.kind](),
    )
