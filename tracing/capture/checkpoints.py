"""Makes activation checkpointing visible while a model is traced.

`torch.export` leaves no trace of a non-reentrant checkpoint. While tracing, the two functions
through which `torch.utils.checkpoint` works are replaced by ones that run the function once and
mark its calls with the number of the region.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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


@contextlib.contextmanager
def numbered_regions() -> Iterator[None]:
    """Numbers checkpoint regions from 1 upwards; reentrant ones have negative numbers."""
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
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(mock.patch.object(module, name, without_reentrant))
        stack.enter_context(mock.patch.object(module, "CheckpointFunction", Reentrant))
        stack.enter_context(traceback.preserve_node_meta())
        yield
