"""Makes activation checkpointing visible while a model is traced.

`torch.export` leaves no trace of a non-reentrant checkpoint. While tracing, the two functions
through which `torch.utils.checkpoint` works are replaced by ones that run the function once and
mark its calls with the number of the region.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch.utils.checkpoint
from torch.fx import traceback

# Numbers of the checkpoint regions that are running, the innermost last.
ACTIVE: list[int] = []


@contextlib.contextmanager
def _region(number: int) -> Iterator[None]:
    ACTIVE.append(number)
    try:
        with traceback.annotate({"prenet_region": number}):
            yield
    finally:
        ACTIVE.pop()


def _flexible(note: Callable[[str], None]) -> dict[str, Any]:
    """What stands for flex_attention: the fused kernel, with every score computed."""
    import torch.nn.attention.flex_attention as flex

    # PyTorch 2.9 returns two tensors, later releases the largest scores as well
    extra = 2 if "max_scores" in inspect.getsource(flex.flex_attention) else 1

    def attend(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> tuple[Any, ...]:
        note("flex_attention counts as the full square")
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)
        rows = query.new_empty(query.shape[:-1], dtype=torch.float32)
        return (out, *(rows,) * extra)

    return {
        "_validate_device": lambda *_: None,
        "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True,
        "flex_attention_hop": attend,
    }


@contextlib.contextmanager
def patched(note: Callable[[str], None]) -> Iterator[None]:
    """Makes visible what tracing would not see.

    Checkpoint regions are numbered from 1 upwards; reentrant ones have negative numbers.

    Args:
        note: Told about what is counted in another way than it runs.
    """
    count = 0

    def without_reentrant(_function: Any, *_: Any, **__: Any) -> Iterator[None]:
        nonlocal count
        count += 1
        with _region(count):
            yield

    class Reentrant:
        @staticmethod
        def apply(function: Any, _preserve: bool, *args: Any) -> Any:
            nonlocal count
            count += 1
            with _region(-count):
                return function(*args)

    module = torch.utils.checkpoint
    # PyTorch 2.14 calls the `_impl` form, earlier releases the plain one.
    plain = "_checkpoint_without_reentrant_generator"
    names = [name for name in (plain, f"{plain}_impl") if hasattr(module, name)]
    mha = torch.backends.mha
    with contextlib.ExitStack() as stack:
        # the fused inference kernels of nn.TransformerEncoder hide what they compute
        stack.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
        mha.set_fastpath_enabled(False)
        for name in names:
            stack.enter_context(mock.patch.object(module, name, without_reentrant))
        stack.enter_context(mock.patch.object(module, "CheckpointFunction", Reentrant))
        stack.enter_context(traceback.preserve_node_meta())
        if "torch.nn.attention.flex_attention" in sys.modules:
            flex = sys.modules["torch.nn.attention.flex_attention"]
            for name, value in _flexible(note).items():
                stack.enter_context(mock.patch.object(flex, name, value))
        yield
