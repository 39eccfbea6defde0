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
from torch import Tensor
from torch_geometric.data import Data

from prenet_gnn.encoding.device import BYTES_PER_CLOCK, DEVICE, RUN
from prenet_gnn.network.loops import CHANNELS_LAST, CPU, runs_last

# FLOP per clock and multiprocessor: plain, channels-last, and that forward before PyTorch 1.12.
PER_CLOCK = (9.4, 3.0, 0.52)
PLAIN, LAST, EARLY = range(3)
START = [math.log(BYTES_PER_CLOCK / rate) for rate in PER_CLOCK]
AMD, SINCE_1_12, ISSUE = RUN.index("is_amd"), RUN.index("since_1_12"), DEVICE.index("log_issue")


def wide_inverse_rate(data: Data, inverse: Tensor, logs: Tensor) -> Tensor:
    """Seconds per FLOP, with those of wide depthwise convolutions put in: `(M, 2)`.

    Args:
        data: Calls of every row.
        inverse: Seconds per FLOP of all calls, forward and backward `(M, 2)`.
        logs: Logarithms of the inverse rates, `(3,)`; `START` is where they begin.
    """
    run = data.run[data.batch]
    wide = data.wide & (run[:, CPU] == 0) & (run[:, AMD] == 0)
    converted = (run[:, CHANNELS_LAST] > 0) & (data.lies_last[:, 2] > 0)
    last = runs_last(data) | converted
    early = last & (run[:, SINCE_1_12] == 0)
    backward = torch.where(last, logs[LAST], logs[PLAIN])
    forward = torch.where(early, logs[EARLY], backward)
    unit = (-data.device[data.batch, ISSUE]).exp()
    slow = torch.stack([forward, backward], dim=-1).exp() * unit[:, None]
    return torch.where(wide[:, None], slow, inverse)
