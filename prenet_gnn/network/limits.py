"""How far the network may correct the roofline time of a call.

A correction is learned from graphs of training, and an unseen network can be unlike all of them.
The hyperbolic tangent that bounds it then says how wrong it can get.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tracing.costs.vocab import KINDS

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
# The head's outputs: arithmetic, memory traffic, kernels and calls, each forward and backward.
OUTPUTS, MEMORY = 8, slice(2, 4)


def correction_limits() -> Tensor:
    """Bounds of the head's outputs for each kind of call, `(len(KINDS), 8)`, logarithms."""
    limits = torch.full((len(KINDS), OUTPUTS), MAX_LOG)
    limits[[KINDS.index(kind) for kind in PASSES], MEMORY] = MAX_PASS_LOG
    return limits
