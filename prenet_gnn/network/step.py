"""Seconds of the optimizer step, of zero_grad and of the copy of the batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prenet_gnn.encoding.batch import GraphBatch
from prenet_gnn.encoding.fields import DEVICE, STEP

# What learns a factor: optimizer and zero_grad per byte, the copy per byte, and its fixed time.
COSTS = ("optimizer", "zero_grad", "copy", "copy_fixed")
# A copy from pageable memory reaches half of the link's rate, after some microseconds of set-up;
# starting points that training moves.
PAGEABLE_LOG, COPY_FIXED_S = math.log(2.0), 2e-5


@dataclass(frozen=True)
class StepSeconds:
    """What surrounds forward and backward, each `(G,)`."""

    optimizer: Tensor
    zero_grad: Tensor
    copy: Tensor


class Step(nn.Module):
    """Memory traffic at the bandwidth, and kernels.

    Shapes:
        `GraphBatch`, a kernel's fixed time `(G,)` -> `StepSeconds` of `(G,)`
    """

    def __init__(self) -> None:
        """Starts at the data sheet's bandwidth."""
        super().__init__()
        self.log = nn.Parameter(torch.zeros(len(COSTS)))

    def forward(self, batch: GraphBatch, kernel_s: Tensor) -> StepSeconds:
        """Seconds of every row."""
        cost = dict(zip(COSTS, self.log.exp(), strict=True))
        per_byte = (-DEVICE.of(batch.device, "log_bandwidth")).exp()
        seconds = {}
        for name in ("optimizer", "zero_grad"):
            moved = STEP.of(batch.step, f"{name}_bytes") * per_byte * cost[name]
            seconds[name] = moved + STEP.of(batch.step, f"{name}_kernels") * kernel_s
        link = self.log[COSTS.index("copy")] + PAGEABLE_LOG - DEVICE.of(batch.device, "log_pcie")
        copy = STEP.of(batch.step, "input_bytes") * link.exp() + COPY_FIXED_S * cost["copy_fixed"]
        return StepSeconds(seconds["optimizer"], seconds["zero_grad"], copy)
