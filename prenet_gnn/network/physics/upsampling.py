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

from prenet_gnn.encoding.fields import OPERATOR_INDEX
from prenet_gnn.network.latents import DEVICE_LATENTS, RowLatents
from prenet_gnn.network.physics.calls import Calls
from prenet_gnn.network.physics.effects import Effect, register_effect

LOOPING = tuple(OPERATOR_INDEX[f"upsample_{name}2d"] for name in ("bilinear", "bicubic"))
# Seconds of one turn of the loop: it waits for memory, whatever the clock.
TURN_S = 3e-7
LARGEST_LOG2 = 40.0


def turns(calls: Calls) -> Tensor:
    """Turns of the loop of every distinct call: samples times channels, `(N,)`."""
    looping = torch.isin(calls.batch.operator, torch.tensor(LOOPING))
    log2 = 8.0 * (calls.number("log_out") - calls.number("log_space"))
    return torch.exp2(log2.clamp(0.0, LARGEST_LOG2)) * looping


@register_effect("upsampling_loops")
class UpsamplingLoops(Effect):
    """The time of the loops, forward only; corrections would have to extrapolate."""

    def extra(self, calls: Calls, latents: RowLatents) -> Tensor:
        """Seconds on this device, `(M,)`."""
        loops = ~calls.run("compiled") & ~calls.run("is_cpu") & ~calls.runs_last
        slower = calls.of_row(DEVICE_LATENTS.of(latents.device, "loops")).exp()
        return TURN_S * calls.spread(turns(calls)) * loops * slower
