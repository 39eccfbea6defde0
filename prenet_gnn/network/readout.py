"""From seconds of calls, step and host to those of a row: phases add up, the host overlaps."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from prenet_gnn.encoding.batch import GraphBatch
from prenet_gnn.encoding.fields import DEVICE, FLOORS, PHASES
from prenet_gnn.network.physics.calls import Calls
from prenet_gnn.network.step import StepSeconds
from tracing.costs.vocab import KINDS

LOSS = KINDS.index("loss")
# Launch and synchronisation around one operator that is timed alone: a starting point.
FLOOR_S = 1e-5
# How sharply the larger of device and host decides: the starting exponent and its range.
SHARPNESS, SHARPEST = 4.0, (1.5, 12.0)
# A CPU is its own host, which dispatches between its operators: this share of it is not hidden.
OWN_HOST_SHARE = 0.1
SHORTEST_S = 1e-9


class Times(NamedTuple):
    """What the network returns, in seconds.

    Shapes:
        `node (M, 2)`, forward and backward of one call of every class of every row; all others
        `(G,)`.
    """

    total: Tensor
    forward: Tensor
    backward: Tensor
    optimizer: Tensor
    device: Tensor
    host: Tensor
    node: Tensor
    loss: Tensor
    zero_grad: Tensor
    copy: Tensor


class Readout(nn.Module):
    """Sums the phases that are timed; the device's sum and the host's dispatch overlap.

    Shapes:
        calls `(M, 2)`, `StepSeconds` and host `(G,)` -> `Times`
    """

    def __init__(self) -> None:
        """Starts with a fairly sharp maximum."""
        super().__init__()
        self.floor_log = nn.Parameter(torch.zeros(len(FLOORS) + 1))
        self.sharpness = nn.Parameter(torch.tensor(SHARPNESS))

    def forward(self, calls: Calls, node: Tensor, step: StepSeconds, host_s: Tensor) -> Times:
        """Seconds of every row."""
        batch = calls.batch
        is_loss = (calls.kind == LOSS)[:, None].float()
        network, loss = (calls.sum_per_row(node * part) for part in (1 - is_loss, is_loss))
        forward, backward = network[:, 0], network[:, 1] + loss[:, 1]
        parts = {
            "forward": forward,
            "loss": loss[:, 0],
            "backward": backward,
            "optimizer": step.optimizer,
            "zero_grad": step.zero_grad,
        }
        device_s = torch.zeros(batch.rows)
        for name, seconds in parts.items():
            device_s = device_s + PHASES.of(batch.phases, name) * seconds
        total = self._together(batch, device_s, host_s)
        return Times(
            total=total + PHASES.of(batch.phases, "h2d") * step.copy,
            forward=forward,
            backward=backward,
            optimizer=step.optimizer,
            device=device_s,
            host=host_s,
            node=node,
            loss=loss[:, 0],
            zero_grad=step.zero_grad,
            copy=step.copy,
        )

    def _together(self, batch: GraphBatch, device_s: Tensor, host_s: Tensor) -> Tensor:
        overlapped = smooth_max(device_s, host_s, self.sharpness)
        on_cpu = DEVICE.of(batch.device, "is_cpu") > 0
        total = torch.where(on_cpu, device_s + OWN_HOST_SHARE * host_s, overlapped)
        alone = device_s + FLOOR_S * self.floor_log[batch.floor].exp()
        return torch.where(batch.floor > 0, alone, total)


def smooth_max(first: Tensor, second: Tensor, sharpness: Tensor) -> Tensor:
    """`(a^p + b^p)^(1/p)`, in logarithms: `(G,)`."""
    p = sharpness.clamp(*SHARPEST)
    logs = torch.stack([each.clamp(min=SHORTEST_S).log() for each in (first, second)])
    return (torch.logsumexp(p * logs, dim=0) / p).exp()
