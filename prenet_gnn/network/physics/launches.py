"""Seconds of starting and ending kernels."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from prenet_gnn.encoding.batch import GraphBatch
from prenet_gnn.encoding.fields import DEVICE, NUMBER_FORMATS

# Starting points; training moves them. A kernel takes a few microseconds at least, as seen in
# launch-bound rows of the data.
KERNEL_S = 2e-6
# A kernel starts and ends faster at a higher clock: the exponent's starting point, and the clock
# that `KERNEL_S` goes with.
KERNEL_CLOCK, KERNEL_CLOCK_HZ = 0.5, 1.5e9


class Launches(nn.Module):
    """A kernel's fixed time, by number format and clock."""

    def __init__(self) -> None:
        """Starts at `KERNEL_S`."""
        super().__init__()
        self.log = nn.Parameter(torch.zeros(len(NUMBER_FORMATS)))
        self.clock_exponent = nn.Parameter(torch.tensor(KERNEL_CLOCK))

    def forward(self, batch: GraphBatch) -> Tensor:
        """Logarithm of a kernel's fixed time over `KERNEL_S`: `(G,)`."""
        clock = DEVICE.of(batch.device, "log_clock") - math.log(KERNEL_CLOCK_HZ)
        log: Tensor = self.log[batch.number_format] - self.clock_exponent * clock
        return log
