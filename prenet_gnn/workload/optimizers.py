"""What each optimizer moves, launches and keeps: one table for times and memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

# A foreach or fused kernel takes this many tensors at a time (multi_tensor_apply's limit is near).
FOREACH_TENSORS = 30
FLOAT_BYTES = 4
# bitsandbytes keeps 8-bit states with one float32 scale a block of so many weights (2,048 before
# its 0.44), and float32 states of tensors with fewer weights (`init_state`, `min_8bit_size`).
BLOCK_WEIGHTS, SMALLEST_8_BIT = 256, 4096

# The bytes of every tensor of state of one weight, from its shape and the bytes of an element.
States = Callable[[tuple[int, ...], int], tuple[int, ...]]


def whole(shape: tuple[int, ...], item_bytes: int, count: int = 1) -> tuple[int, ...]:
    """States as large as the weight, in its number format."""
    return (math.prod(shape) * item_bytes,) * count


def whole_and_step(shape: tuple[int, ...], item_bytes: int, count: int = 1) -> tuple[int, ...]:
    """The same and a count of steps on the device, where `fused=True` keeps it."""
    return (*whole(shape, item_bytes, count), FLOAT_BYTES)


def factored(shape: tuple[int, ...], item_bytes: int) -> tuple[int, ...]:
    """Rows and columns over the last two sizes of a weight; a vector's state is whole."""
    if len(shape) < 2:
        return whole(shape, item_bytes)
    size = math.prod(shape) * item_bytes
    return (size // max(1, shape[-1]), size // max(1, shape[-2]))


def in_8_bits(shape: tuple[int, ...], item_bytes: int, count: int = 1) -> tuple[int, ...]:
    """A byte for every weight and a scale for every block."""
    numel = math.prod(shape)
    if numel < SMALLEST_8_BIT:
        return whole(shape, FLOAT_BYTES, count)
    return (numel, math.ceil(numel / BLOCK_WEIGHTS) * FLOAT_BYTES) * count


NOTHING, ONE, TWO = (partial(whole, count=count) for count in range(3))
TWO_AND_STEP = partial(whole_and_step, count=2)


@dataclass(frozen=True, slots=True)
class Optimizer:
    """One step's work and memory, in units of the trained weights.

    Attributes:
        passes: Tensors that a step reads and writes per parameter, each once between two
            reductions: weight and gradient read, weight written (SGD); momentum read and written
            too; two moments for Adam (Kingma & Ba 2015).
        other_bytes: Bytes that a step moves per weight whatever the weight's number format.
        kernels: Kernels per parameter tensor where a step loops over tensors; per group of tensors
            where it is grouped.
        grouped: Whether a kernel takes a group of tensors: `foreach` by versions whose default is
            foreach, `always` or `never`.
        states: Tensors of state that live from step to step.
        temporaries: Tensors of a step that is grouped, for all weights at once: Adam's denominator.
        loop_temporaries: Tensors of a step over one weight at a time: its root and quotient.
    """

    passes: int = 0
    other_bytes: float = 0.0
    kernels: int = 0
    grouped: str = "foreach"
    states: States = NOTHING
    temporaries: int = 0
    loop_temporaries: int = 0

    def takes_groups(self, is_foreach: bool) -> bool:
        """Whether a kernel takes a group of tensors under a version that is foreach or not."""
        return self.grouped == "always" or (self.grouped == "foreach" and is_foreach)

    def launches(self, tensors: int, is_foreach: bool) -> int:
        """Kernels of a step over so many weights."""
        grouped = self.takes_groups(is_foreach)
        return self.kernels * (math.ceil(tensors / FOREACH_TENSORS) if grouped else tensors)

    def moved_bytes(self, weights: int, item_bytes: int) -> float:
        """Bytes that a step over so many weights reads and writes."""
        return (self.passes * item_bytes + self.other_bytes) * weights


# Kernels and temporaries of foreach steps were counted in torch.optim's and timm's
# `_multi_tensor_*`, those of one weight at a time in `_single_tensor_*`. A fused step is one kernel
# (`_fused_adam_`; apex's FusedAdam under PyTorch of before), and Adam's adds one to its steps.
OPTIMIZERS = {
    "none": Optimizer(),
    "sgd": Optimizer(passes=3, kernels=1),
    "sgd_momentum": Optimizer(passes=5, kernels=3, states=ONE),
    "adam": Optimizer(passes=7, kernels=8, states=TWO, temporaries=1, loop_temporaries=2),
    "adamw": Optimizer(passes=7, kernels=9, states=TWO, temporaries=1, loop_temporaries=2),
    # Adam with a second update of the weight (Dozat 2016)
    "nadam": Optimizer(passes=7, kernels=9, states=TWO, temporaries=1, loop_temporaries=2),
    # torch.optim's defaults: neither centred nor with momentum
    "rmsprop": Optimizer(passes=5, kernels=5, states=ONE, temporaries=1, loop_temporaries=1),
    # Duchi et al. 2011; torch.optim's step holds the root and the scaled gradient
    "adagrad": Optimizer(passes=5, kernels=5, states=ONE, temporaries=2, loop_temporaries=1),
    # Shazeer & Stern 2018: the gradient read for its means and the weight for its size, the update
    # written, then read beside the weight. torch.optim's loops by default: nine kernels of means,
    # four of the estimate, two of the update, two norms with a copy to the host each, one addition.
    "adafactor": Optimizer(
        passes=7, kernels=20, grouped="never", states=factored, loop_temporaries=1
    ),
    # You et al. 2020, as timm's: the gradient read for the norm of all, Adam's seven with the
    # update for one moment more, then update and weight read and the weight written. Held are the
    # clipped gradient, the denominator and the update.
    "lamb": Optimizer(passes=11, kernels=12, states=TWO, temporaries=3, loop_temporaries=3),
    # Chen et al. 2023, as timm's: decay, blend, sign, addition, momentum
    "lion": Optimizer(passes=5, kernels=5, states=ONE, temporaries=1, loop_temporaries=1),
    # torch.optim's `fused=True`
    "fused_sgd": Optimizer(passes=3, kernels=1, grouped="always"),
    "fused_sgd_momentum": Optimizer(passes=5, kernels=1, grouped="always", states=ONE),
    "fused_adam": Optimizer(passes=7, kernels=2, grouped="always", states=TWO_AND_STEP),
    "fused_adamw": Optimizer(passes=7, kernels=2, grouped="always", states=TWO_AND_STEP),
}
# bitsandbytes (Dettmers et al. 2022): one kernel a weight; both states and their scales are read
# and written beside the weight and its gradient.
_EIGHT_BITS = Optimizer(
    passes=3,
    other_bytes=4 * (1 + FLOAT_BYTES / BLOCK_WEIGHTS),
    kernels=1,
    grouped="never",
    states=partial(in_8_bits, count=2),
)
OPTIMIZERS |= {"adam8bit": _EIGHT_BITS, "adamw8bit": _EIGHT_BITS}
