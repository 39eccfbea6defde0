"""Rates of depthwise convolutions with kernels beyond 7 x 7.

cuDNN has depthwise kernels up to that size (supposed from times). Beyond it, plain tensors run
PyTorch's own kernel, which loops over the positions it looks at (`DepthwiseConv2d.cu`), and
channels-last tensors a kernel for groups of any width. Whole steps, less what the network predicts
for their other calls, leave these TFLOP/s to them (`python -m experiments.leftover`, ConvMixer
held out in fold 4, MixNet and FocalNet in fold 1): in the plain layout 1.2 to 1.6 (ConvMixer), 0.6
to 1.2 (the others) on the RTX 3090, 3.1 (ConvMixer) on the RTX 4090; in the channels-last one 0.3
to 0.6 and 0.9 to 1.0, and 0.07 forward before PyTorch 1.12. Per clock and multiprocessor that is
alike, but for the plain layout of small maps. Training starts from it and moves it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from prenet_gnn.catalogue.rates import BYTES_PER_CLOCK
from prenet_gnn.encoding.fields import size_log
from prenet_gnn.network.physics.calls import Calls
from prenet_gnn.network.physics.effects import Effect, register_effect

# FLOP per clock and multiprocessor: plain, channels-last, and that forward before PyTorch 1.12.
PER_CLOCK = (9.4, 3.0, 0.52)
PLAIN, LAST, EARLY = range(3)


@register_effect("wide_depthwise")
class WideDepthwise(Effect):
    """Depthwise convolutions whose kernels look at more than 7 x 7 positions, on NVIDIA's GPUs."""

    def __init__(self) -> None:
        """Starts at `PER_CLOCK`, in units of the issue rate."""
        super().__init__()
        start = [math.log(BYTES_PER_CLOCK / rate) for rate in PER_CLOCK]
        self.log = nn.Parameter(torch.tensor(start))

    def inverse_rate(self, calls: Calls, rate_class: Tensor, found: Tensor) -> Tensor:
        """Seconds per FLOP, `(M, 2)`."""
        beyond = calls.number("log_kernel") > size_log(7 * 7) + 1e-4
        wide = calls.spread((calls.number("is_depthwise") > 0) & beyond)
        wide = wide & ~calls.run("is_cpu") & ~calls.run("is_amd")
        converted = calls.run("channels_last") & calls.spread(calls.number("converts_in_last") > 0)
        last = calls.runs_last | converted
        early = last & ~calls.run("since_1_12")
        backward = torch.where(last, self.log[LAST], self.log[PLAIN])
        forward = torch.where(early, self.log[EARLY], backward)
        unit = (-calls.device("log_issue")).exp()
        slow = torch.stack([forward, backward], dim=-1).exp() * unit[:, None]
        return torch.where(wide[:, None], slow, found)
