"""How far the network may correct the roofline time of a call.

A correction is learned from graphs of training, and an unseen network can be unlike all of them.
The hyperbolic tangent that bounds it then says how wrong it can get.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tracing.vocab import KINDS

# Largest correction, as a natural logarithm: a factor of 20 each way.
MAX_LOG = 3.0
# That of the memory traffic of kernels that pass over tensors: a factor of 3.3. On training rows of
# one fold nine tenths of the time of each kind but copies were corrected by less (copies by 3.7),
# while copies of MViTv2, held out, took nine times as long as their traffic at the data sheet's
# bandwidth, where a network that knew the family said twice.
MAX_PASS_LOG = 1.2
PASSES = (
    "linear", "batch_norm", "layer_norm", "rms_norm", "softmax", "activation", "binary", "unary",
    "copy", "dropout", "view",
)  # fmt: skip
# Where the head's outputs for memory traffic are, forward and backward, out of all.
MEMORY, OUTPUTS = slice(2, 4), 8


def correction_limits() -> Tensor:
    """Bounds of the head's outputs for each kind of call, `(len(KINDS), 8)`, logarithms."""
    limits = torch.full((len(KINDS), OUTPUTS), MAX_LOG)
    limits[[KINDS.index(kind) for kind in PASSES], MEMORY] = MAX_PASS_LOG
    return limits
