"""How far the network may correct the roofline time of a call.

A correction is learned from graphs of training, and an unseen network can be unlike all of them.
The hyperbolic tangent that bounds it then says how wrong it can get.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from tracing.vocab import KINDS

# Largest correction, as a natural logarithm: a factor of 20 each way.
MAX_LOG = 3.0
# That of the memory traffic of kernels that pass over tensors: a factor of 3.3, chosen by hand, for
# learned corrections of such calls are mostly smaller on training rows, while copies of MViTv2 came
# out many times too slow where that family was held out (`docs/accuracy.md`).
MAX_PASS_LOG = 1.2
PASSES = (
    "linear", "batch_norm", "layer_norm", "rms_norm", "softmax", "activation", "binary", "unary",
    "copy", "dropout", "view",
)  # fmt: skip
# That of their fixed time per kernel: a factor of 5. DenseNet held out had 0.3 ms for each `cat`.
MAX_PASS_KERNEL_LOG = 1.6
# Products of matrices: a factor of 3.3 for their arithmetic, 6 for their memory traffic.
PRODUCTS, MAX_ARITHMETIC_LOG = ("linear", "matmul", "attention"), 1.2
MIXING, MAX_MIXING_LOG = ("matmul", "attention"), 1.8
# The head's outputs: arithmetic, memory traffic, kernels and calls, each forward and backward.
OUTPUTS, ARITHMETIC, MEMORY, KERNELS = 8, slice(0, 2), slice(2, 4), slice(4, 6)


def correction_limits() -> Tensor:
    """Bounds of the head's outputs for each kind of call, `(len(KINDS), 8)`, logarithms."""
    limits = torch.full((len(KINDS), OUTPUTS), MAX_LOG)
    limits[[KINDS.index(kind) for kind in PASSES], MEMORY] = MAX_PASS_LOG
    limits[[KINDS.index(kind) for kind in PASSES], KERNELS] = MAX_PASS_KERNEL_LOG
    limits[[KINDS.index(kind) for kind in PRODUCTS], ARITHMETIC] = MAX_ARITHMETIC_LOG
    limits[[KINDS.index(kind) for kind in MIXING], MEMORY] = MAX_MIXING_LOG
    return limits


def effort(scale: Tensor, data: Data) -> Tensor:
    """How much a network corrects, `(G,)`: mean square of its corrections in the timed passes.

    Where a correction moves no measured time, rows do not tell how large it is, and it has no
    reason to be large; in an unseen network it may move a lot.

    Args:
        scale: Corrections of every call of every row, `(M, 8)`, logarithms.
        data: The batch after `model.spread.spread`.
    """
    timed = data.phases[:, [0, 2]].repeat(1, OUTPUTS // 2)
    square = (scale.square() * timed[data.batch]).mean(dim=-1)
    calls = torch.bincount(data.batch, minlength=len(timed)).clamp(min=1)
    return torch.zeros(len(timed)).index_add_(0, data.batch, square) / calls
