"""Answers questions about whole tensors to which every sound run gives the same answer.

Models look for overflow (`if torch.isinf(x).any(): x = x.clamp(...)`) and assert what must hold
(`torch._check_tensor_all`). Tensors without values cannot tell, but a run worth predicting has
finite numbers and passes its assertions, so these answers need no values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from tracing.capture.explain import needs_values
from tracing.errors import TraceError

Result = TypeVar("Result")

# What every element of the result is, in a sound run.
_MADE = {
    "isfinite": True,
    "isinf": False,
    "isnan": False,
    "isposinf": False,
    "isneginf": False,
    "_is_all_true": True,
}
_KEEP = ("any", "all")
_INVERT = ("logical_not", "bitwise_not", "__invert__")
_AND = ("logical_and", "bitwise_and", "__and__", "__rand__")
_OR = ("logical_or", "bitwise_or", "__or__", "__ror__")
# What `torch.compiler.is_compiling` and `is_exporting` look at.
_FLAGS = ("_is_compiling_flag", "_is_exporting_flag")
_READ = ("__bool__", "item")


class SoundRun(TorchFunctionMode):
    """Follows tensors whose every element is known to be true, or false, and answers for them."""

    def __init__(self) -> None:
        """Starts with nothing known."""
        super().__init__()
        # the tensor is kept, so that its identity stays its own
        self._known: dict[int, tuple[torch.Tensor, bool]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs a function, or answers in its place."""
        name = getattr(func, "__name__", "")
        truth = self._truth(name, args)
        if truth is not None and name in _READ:
            return truth
        out = func(*args, **(kwargs or {}))
        if name == "__setitem__":
            self._known.pop(id(args[0]), None)
        if isinstance(out, torch.Tensor):
            # whatever writes into a known tensor makes it unknown
            self._known.pop(id(out), None)
            if truth is not None:
                self._known[id(out)] = (out, truth)
        return out

    def _truth(self, name: str, args: Any) -> bool | None:
        """What every element of a result is, where that is known."""
        if name in _MADE:
            return _MADE[name] if args and _hollow(args[0]) else None
        given = [self._known[id(each)][1] if id(each) in self._known else None for each in args[:2]]
        if not given or all(each is None for each in given):
            return None
        if name in _KEEP or name in _READ:
            return given[0]
        if name in _INVERT:
            return not given[0]
        for names, decides in ((_AND, False), (_OR, True)):
            if name in names:
                if decides in given:
                    return decides
                return None if None in given else not decides
        return None


def _hollow(tensor: Any) -> bool:
    """Whether a tensor has no values."""
    fake = type(tensor).__name__ in ("FakeTensor", "FunctionalTensor")
    return fake or tensor.device.type == "meta"


@contextlib.contextmanager
def _exporting() -> Iterator[None]:
    """Tells models that ask that they are exported, so that they leave questions to values out."""
    with contextlib.ExitStack() as stack:
        for name in _FLAGS:
            if hasattr(torch.compiler, name):
                stack.enter_context(mock.patch.object(torch.compiler, name, True))
        yield


def sound(capture: Callable[[], Result], *, once: bool = False) -> Result:
    """Captures a model; where it asks for values, once more with what helps it without them.

    Args:
        capture: What traces the model.
        once: Leave it at the first attempt, as there are values to fall back to.
    """
    try:
        return capture()
    except TraceError:
        raise
    except Exception as error:
        if once or not needs_values(error):
            raise
    with _exporting(), SoundRun():
        return capture()
