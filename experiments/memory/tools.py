"""What other tools say of the memory of a training step, on the same models.

* `accelerate estimate-memory` (Hugging Face): weights, gradients and Adam's state of a model at
  batch size 1, from its weights alone. Its command needs the Hub; here its own functions get the
  model directly.
* `kitsune predict` (torch-kitsune): the same, the outputs of all layers and 15% on top, at any
  batch size. It knows no autocast: there its float32 answer is taken with half of the activations.
  They are proportional to the batch size.

Both run on the meta device, so nothing is computed.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata, util
from typing import Any

import torch
from torch import nn

GIB = 2**30
# Samples that kitsune is asked about: batch norm in training wants more than one.
FEW = 2
# Name of a tool -> its distribution, which is installed apart: nothing else needs it.
TOOLS = {"accelerate": "accelerate", "kitsune": "torch-kitsune"}


@dataclass(frozen=True, slots=True)
class Question:
    """A training step that a tool is asked about.

    Attributes:
        model: On the meta device, weights in the format they are stored in.
        shape: Shape of one sample.
        batch_size: Samples per step.
        half: Whether activations are in half precision.
        optimizer: As in `Workload`.
        tokens: Whether the input is token ids.
    """

    model: nn.Module
    shape: tuple[int, ...]
    batch_size: int
    half: bool
    optimizer: str
    tokens: bool = False


class Ids(nn.Module):
    """A language model that takes ids as numbers of any format, as kitsune hands them over."""

    def __init__(self, model: nn.Module) -> None:
        """Wraps the model."""
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> Any:
        """The model's output on the ids."""
        return self.model(input_ids=ids.long())


@functools.cache
def installed() -> dict[str, str]:
    """Tools at hand, with their versions."""
    return {
        name: metadata.version(package)
        for name, package in TOOLS.items()
        if util.find_spec(name) is not None
    }


def accelerate_bytes(question: Question) -> int:
    """`accelerate estimate-memory`: its largest figure for training with Adam."""
    from accelerate.commands.estimate import estimate_training_usage

    usage = estimate_training_usage(
        _accelerate(question.model), "float16" if question.half else "float32"
    )
    return int(max(usage.values()))


@functools.lru_cache(maxsize=1)
def _accelerate(model: nn.Module) -> int:
    from accelerate.utils import calculate_maximum_sizes

    return int(calculate_maximum_sizes(model)[0])


def kitsune_bytes(question: Question) -> int:
    """`kitsune predict`: its total for training."""
    lasting, activations, overhead = _kitsune(
        question.model, question.shape, question.optimizer, question.tokens
    )
    activations *= question.batch_size / FEW * (0.5 if question.half else 1.0)
    return int((lasting + activations) * (1.0 + overhead))


@functools.lru_cache(maxsize=1)
def _kitsune(
    model: nn.Module, shape: tuple[int, ...], optimizer: str, tokens: bool
) -> tuple[int, int, float]:
    """Bytes that last, bytes of activations for `FEW` samples, and the share on top."""
    from kitsune.predict import predict_memory

    asked = Ids(model) if tokens else model
    # it prints what its tracer stumbles over
    with torch.device("meta"), contextlib.redirect_stderr(io.StringIO()):
        found = predict_memory(asked, shape, FEW, torch.float32, optimizer)
    lasting = found.param_bytes + found.gradient_bytes + found.optimizer_bytes
    return (
        lasting,
        found.activation_bytes,
        found.overhead_bytes / (lasting + found.activation_bytes),
    )


ASKED: dict[str, Callable[[Question], int]] = {
    "accelerate": accelerate_bytes,
    "kitsune": kitsune_bytes,
}


def fits(tool: str, needed_bytes: int, memory_bytes: int) -> bool:
    """A tool's verdict: kitsune keeps half a GiB of a large device free, accelerate nothing."""
    reserve = GIB // 2 if tool == "kitsune" else 0
    return needed_bytes <= memory_bytes - reserve


def answers(
    question: Question | None, batch_size: int, precision: str, optimizer: str
) -> dict[str, int]:
    """Bytes by the other tools; a tool that fails has no answer."""
    found: dict[str, int] = {}
    if question is None:
        return found
    half = precision not in ("fp32", "tf32", "fp64")
    asked = replace(question, batch_size=batch_size, half=half, optimizer=optimizer)
    for tool in installed():
        try:
            found[tool] = ASKED[tool](asked)
        except Exception as error:  # what another tool raises is no failure of this study
            print(f"{tool} has no answer: {error}")
    return found
