"""What each optimizer moves, launches and keeps: one table for times and memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Optimizer:
    """One step's work and memory, in units of the trained weights.

    Attributes:
        passes: Tensors that a step reads and writes per parameter: weight and gradient read, weight
            written (SGD); momentum read and written too; two moments for Adam (Kingma & Ba 2015).
        kernels: Kernels per parameter tensor where a step loops over tensors; per group of tensors
            where it is foreach.
        states: Tensors of state that live from step to step.
        temporaries: Tensors of a step that is foreach, for all weights at once: Adam's denominator.
        loop_temporaries: Tensors of a step over one weight at a time: its root and quotient.
    """

    passes: int = 0
    kernels: int = 0
    states: int = 0
    temporaries: int = 0
    loop_temporaries: int = 0


OPTIMIZERS = {
    "none": Optimizer(),
    "sgd": Optimizer(passes=3, kernels=1),
    "sgd_momentum": Optimizer(passes=5, kernels=3, states=1),
    "adam": Optimizer(passes=7, kernels=8, states=2, temporaries=1, loop_temporaries=2),
    "adamw": Optimizer(passes=7, kernels=9, states=2, temporaries=1, loop_temporaries=2),
}
