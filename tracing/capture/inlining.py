"""Shows the recorder what compiled functions and functions with their own backward pass run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch.autograd import Function


class _Context:
    """What the forward pass of an `autograd.Function` may ask of its context."""

    saved_tensors: tuple[Any, ...] = ()
    needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keeps tensors, as the forward pass may read them back."""
        self.saved_tensors = tensors

    def _nothing(self, *_: Any) -> None:
        """Marks matter to autograd alone."""

    save_for_forward = mark_dirty = mark_non_differentiable = set_materialize_grads = _nothing


def _apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs the forward pass as plain operators, as `torch.export` does."""
    context = _Context()
    context.needs_input_grad = tuple(
        isinstance(value, torch.Tensor) and value.requires_grad for value in args
    )
    if cls.setup_context is Function.setup_context:
        return cls.forward(context, *args, **kwargs)
    out = cls.forward(*args, **kwargs)
    cls.setup_context(context, args, out)
    return out


@contextlib.contextmanager
def inlined() -> Iterator[None]:
    """While the block runs, an `autograd.Function` is what its forward pass computes."""
    with mock.patch.object(Function, "apply", classmethod(_apply)):
        yield


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """While the block runs, what `torch.compile` made runs as it was written."""
    if "torch._dynamo" not in sys.modules:  # then nothing is compiled
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield
