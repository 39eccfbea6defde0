"""Seconds of memory traffic: bytes at the memory's bandwidth, and what saves or slows them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from prenet_gnn.encoding.fields import DEVICE, NUMBER_FORMATS
from prenet_gnn.network.physics.calls import Calls
from prenet_gnn.network.physics.effects import Effect, register_effect

# Starting time over that of the data sheet's bandwidth.
TRAFFIC_START = 1.2
# Starting share of traffic that a large enough cache saves, and how sharply it stops to fit.
CACHE_LOGIT, CACHE_SHARPNESS = -1.5, 1.5
# Starting share of a memory-bound kernel's time that the multiprocessors decide and not the memory.
ISSUE_LOGIT = -0.8


class Traffic(nn.Module):
    """How far kernels stay behind the bandwidth, by number format."""

    def __init__(self) -> None:
        """Starts a fifth behind."""
        super().__init__()
        self.log = nn.Parameter(torch.full((len(NUMBER_FORMATS),), math.log(TRAFFIC_START)))

    def bandwidth(self, calls: Calls) -> Tensor:
        """Seconds per byte by the data sheet, `(G,)`."""
        log: Tensor = DEVICE.of(calls.batch.device, "log_bandwidth")
        return (-log).exp()

    def forward(self, calls: Calls) -> Tensor:
        """Logarithm of what it takes longer, `(G,)`."""
        return self.log[calls.batch.number_format]


@register_effect("issue_rate")
class IssueRate(Effect):
    """Lets multiprocessors and clock limit memory traffic beside the bandwidth."""

    def __init__(self) -> None:
        """Starts with a third."""
        super().__init__()
        self.logit = nn.Parameter(torch.full((len(NUMBER_FORMATS),), ISSUE_LOGIT))

    def per_byte(self, calls: Calls, found: Tensor) -> Tensor:
        """Seconds per byte, `(G,)`."""
        share = torch.sigmoid(self.logit[calls.batch.number_format])
        issue: Tensor = DEVICE.of(calls.batch.device, "log_issue")
        return (1.0 - share) * found + share * (-issue).exp()


@register_effect("cache")
class Cache(Effect):
    """The share of the traffic that the second level cache takes, forward and backward."""

    def __init__(self) -> None:
        """Starts small, at the size of the data sheet."""
        super().__init__()
        self.share = nn.Parameter(torch.full((2,), CACHE_LOGIT))
        self.size = nn.Parameter(torch.zeros(2))

    def traffic(self, calls: Calls, found: Tensor) -> Tensor:
        """Seconds of memory traffic, `(M, 2)`."""
        room = calls.device("log_l2")[:, None] + self.size
        fits = torch.sigmoid(CACHE_SHARPNESS * (room - torch.log(1.0 + calls.moved_bytes)))
        return found * (1.0 - torch.sigmoid(self.share) * fits)
