"""Rates of depthwise convolutions with kernels beyond 7 x 7, and of grouped ones in channels-last.

cuDNN has depthwise kernels up to that size (supposed from times). Beyond it, plain tensors run
PyTorch's own kernel, which loops over the positions it looks at (`DepthwiseConv2d.cu`), and
channels-last tensors a kernel for groups of any width. Whole steps, less what the network predicts
for their other calls, leave these TFLOP/s to them (`python -m experiments.leftover`, ConvMixer
held out in fold 4, MixNet and FocalNet in fold 1): in the plain layout 1.2 to 1.6 (ConvMixer), 0.6
to 1.2 (the others) on the RTX 3090, 3.1 (ConvMixer) on the RTX 4090; in the channels-last one 0.3
to 0.6 and 0.9 to 1.0, and 0.07 forward before PyTorch 1.12. Per clock and multiprocessor that is
alike, but for the plain layout of small maps. Training starts from it and moves it.

Grouped convolutions in channels-last are as fast as in the plain layout where 16, 32, 48, ...
groups are 4, 8, 16 or 32 channels wide. All others take several times as long, backward above all
(`python -m experiments.grouped`), and in proportion to FLOPs over the width of a group: as if every
group were as wide as a tile.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch_geometric.data import Data

from prenet_gnn.model.device import BYTES_PER_CLOCK, DEVICE, RUN
from prenet_gnn.model.loops import CHANNELS_LAST, CPU, runs_last

# FLOP per clock and multiprocessor: plain, channels-last, and that forward before PyTorch 1.12.
PER_CLOCK = (9.4, 3.0, 0.52)
PLAIN, LAST, EARLY = range(3)
START = [math.log(BYTES_PER_CLOCK / rate) for rate in PER_CLOCK]
# FLOP over the width of a group, per clock and multiprocessor, at which such groups take time on
# top, forward and backward. RegNets on the RTX 3090 under PyTorch 1.11 took 0.06 to 0.28 s longer a
# step for 2e9 of them forward; that a tenth of it is forward is supposed. Training moves both.
SLOW_PER_CLOCK = (2.0, 0.2)
SLOW_START = [math.log(BYTES_PER_CLOCK / rate) for rate in SLOW_PER_CLOCK]
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


def slow_groups(data: Data, logs: Tensor) -> Tensor:
    """Seconds per FLOP that groups without kernels of their own take on top: `(M, 2)`.

    Args:
        data: Calls of every row.
        logs: Logarithms of the inverse rates, `(2,)`; `SLOW_START` is where they begin.
    """
    run = data.run[data.batch]
    slow = data.slow_groups & (run[:, CPU] == 0) & (run[:, AMD] == 0) & runs_last(data)
    width = (2.0 ** (8.0 * data.x[:, 2]) - 1.0).clamp(min=1.0)
    unit = (-data.device[data.batch, ISSUE]).exp() * slow / width
    extra: Tensor = logs.exp() * unit[:, None]
    return extra
