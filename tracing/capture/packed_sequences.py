"""Packed sequences as an upper bound: every sequence counts as long as the longest.

How many steps a packed sequence has depends on values, which tracing has none of. While tracing,
packing therefore keeps the padding, and recurrent layers run on the padded tensor.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.nn.modules.rnn as rnn_module

_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


class _Sizes:
    """Stands for the tensor of batch sizes: every step has all sequences."""

    device = SimpleNamespace(type="cpu")

    def __init__(self, steps: int, batch: int) -> None:
        """Remembers how the padded tensor was laid out."""
        self.steps, self.batch = steps, batch

    def __getitem__(self, _: int) -> int:
        """Sequences at a step."""
        return self.batch

    def __len__(self) -> int:
        """Number of steps."""
        return self.steps

    def size(self, _: int = 0) -> int:
        """Number of steps, as a tensor would say it."""
        return self.steps


def _pack(note: Callable[[], None]) -> Callable[..., Any]:
    def pack(data: torch.Tensor, _lengths: Any, batch_first: bool) -> tuple[torch.Tensor, Any]:
        note()
        steps_first = data.transpose(0, 1) if batch_first else data
        steps, batch = steps_first.shape[:2]
        return steps_first.flatten(0, 1), _Sizes(steps, batch)

    return pack


def _pad(original: Callable[..., Any]) -> Callable[..., Any]:
    def pad(data: Any, sizes: Any, batch_first: bool, value: float, total: int) -> Any:
        if not isinstance(sizes, _Sizes):
            return original(data, sizes, batch_first, value, total)
        steps_first = data.unflatten(0, (sizes.steps, sizes.batch))
        lengths = torch.full((sizes.batch,), sizes.steps, dtype=torch.int64)
        return steps_first.transpose(0, 1) if batch_first else steps_first, lengths

    return pad


def _recurrent(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(data: Any, sizes: Any, *rest: Any) -> Any:
        if not isinstance(sizes, _Sizes):
            return original(data, sizes, *rest)
        padded = data.unflatten(0, (sizes.steps, sizes.batch))
        out, *states = original(padded, *rest, False)
        return (out.flatten(0, 1), *states)

    return run


@contextlib.contextmanager
def padded(note: Callable[[], None]) -> Iterator[None]:
    """Keeps the padding of packed sequences; calls `note` when one is made."""
    functions: Any = torch._VF
    changes: dict[str, Any] = {name: _recurrent(getattr(functions, name)) for name in _RECURRENT}
    changes["_pack_padded_sequence"] = _pack(note)
    changes["_pad_packed_sequence"] = _pad(functions._pad_packed_sequence)
    impls = getattr(rnn_module, "_rnn_impls", {})
    named = {name: changes[name.lower()] for name in impls if name.lower() in changes}
    with contextlib.ExitStack() as stack:
        for name, function in changes.items():
            stack.enter_context(mock.patch.object(functions, name, function, create=True))
        stack.enter_context(mock.patch.dict(impls, named))
        yield
