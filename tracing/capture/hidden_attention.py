"""Shows attention that PyTorch hides in kernels of its own."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

_FLEX = "torch.nn.attention.flex_attention"


def _flexible(flex: Any, note: Callable[[str], None]) -> dict[str, Any]:
    """What stands for flex_attention: the fused kernel, with every score computed."""
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
def shown_attention(note: Callable[[str], None]) -> Iterator[None]:
    """Runs attention as operators that can be seen.

    Args:
        note: Told about what is counted in another way than it runs.
    """
    mha = torch.backends.mha
    with contextlib.ExitStack() as stack:
        # the fused inference kernels of nn.TransformerEncoder hide what they compute
        stack.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
        mha.set_fastpath_enabled(False)
        flex = sys.modules.get(_FLEX)
        if flex is not None:
            for name, value in _flexible(flex, note).items():
                stack.enter_context(mock.patch.object(flex, name, value))
        yield
