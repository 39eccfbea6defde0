"""Kernels that walk through samples and channels one after the other.

PyTorch's CUDA kernels for linear and cubic interpolation of plain tensors have one thread for each
position of the output, which loops over all samples and channels (`UpSampleBilinear2d.cu` and
`UpSampleBicubic2d.cu`). EfficientFormerV2 upsamples 7 x 7 maps of 1,024 channels, and its eager
times, held out, missed a time of about `TURN_S` for every sample and channel on three cards (read
off once; no command prints it). A compiler writes a kernel of its own; channels-last tensors have
another kernel; CPUs share the work otherwise.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from prenet_gnn.encoding.device import RUN
from prenet_gnn.encoding.fields import OPERATOR_INDEX

LOOPING = tuple(OPERATOR_INDEX[f"upsample_{name}2d"] for name in ("bilinear", "bicubic"))
# Seconds of one turn of the loop: it waits for memory, whatever the clock.
TURN_S = 3e-7
COMPILED, CPU = RUN.index("compiled"), RUN.index("is_cpu")
CHANNELS_LAST = RUN.index("channels_last")
LARGEST_LOG2 = 40.0


def turns(operator: Tensor, log_out: Tensor, log_space: Tensor) -> Tensor:
    """Turns of the loop of every call: samples times channels, `(N,)`.

    Args:
        operator: Number of the operator.
        log_out: Elements of the output, as `encoding.fields.size_log` gives them.
        log_space: Positions of its images, likewise.
    """
    looping = torch.isin(operator, torch.tensor(LOOPING, device=operator.device))
    found = torch.exp2((8.0 * (log_out - log_space)).clamp(0.0, LARGEST_LOG2))
    return found * looping


def runs_last(data: Data) -> Tensor:
    """Whether every call finds its input in the channels-last layout: `(M,)`."""
    channels_last = data.run[data.batch, CHANNELS_LAST] > 0
    return torch.where(channels_last, data.lies_last[:, 1], data.lies_last[:, 0]) > 0


def loop_seconds(data: Data) -> Tensor:
    """Seconds of the loops of every call on a typical device: `(M,)`; they run forward only."""
    run = data.run[data.batch]
    loops = (run[:, COMPILED] == 0) & (run[:, CPU] == 0) & ~runs_last(data)
    seconds: Tensor = TURN_S * data.turns * loops
    return seconds
