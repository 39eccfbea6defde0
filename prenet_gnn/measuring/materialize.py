"""Makes the zoo build real tensors where it would make tensors without memory.

The zoo builds under the meta device. A function mode around it sends each tensor that is asked for
on that device to a real one instead, so the library's own initialisation runs: weights, masks and
position tables hold what they hold in a user's model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from prenet_gnn.measuring.errors import MeasureError

if TYPE_CHECKING:
    import torch


def _is_meta(value: Any) -> bool:
    import torch

    if isinstance(value, torch.device):
        return value.type == "meta"
    return isinstance(value, str) and value == "meta"


@contextmanager
def real_tensors(device: str) -> Iterator[None]:
    """Replaces the meta device by `device` in every call that makes or moves a tensor."""
    import torch
    from torch.overrides import TorchFunctionMode

    class RealDevice(TorchFunctionMode):
        """Sees a call after an inner `with torch.device("meta")` has put its device in."""

        def __torch_function__(
            self,
            func: Callable[..., Any],
            types: Any,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:
            kwargs = dict(kwargs or {})
            if _is_meta(kwargs.get("device")):
                kwargs["device"] = device
            if func is torch.Tensor.to and len(args) > 1 and _is_meta(args[1]):
                args = (args[0], device, *args[2:])
            return func(*args, **kwargs)

    with RealDevice():
        yield


def fill_inputs(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Gives inputs sensible values: noise for numbers, random tokens for token ids.

    All tokens alike would make an embedding's gradient one long chain of additions to one row.
    """
    tensors = [*model.parameters(), *model.buffers()]
    if any(tensor.is_meta for tensor in tensors):
        raise MeasureError(
            "parts of the model could not be built with memory; measure it as a file."
        )
    vocabulary = _vocabulary(model)
    filled = tuple(_filled(value, None) for value in args)
    return filled, {
        name: _filled(value, vocabulary if name.endswith("input_ids") else None)
        for name, value in kwargs.items()
    }


def _vocabulary(model: torch.nn.Module) -> int | None:
    embeddings = getattr(model, "get_input_embeddings", None)
    try:
        found = embeddings() if callable(embeddings) else None
    except NotImplementedError:
        return None
    return getattr(found, "num_embeddings", None)


def _filled(value: Any, vocabulary: int | None) -> Any:
    import torch

    if isinstance(value, list | tuple):
        return type(value)(_filled(item, vocabulary) for item in value)
    if isinstance(value, dict):
        return {key: _filled(item, vocabulary) for key, item in value.items()}
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_floating_point():
        return torch.randn(value.shape, dtype=value.dtype, device=value.device)
    if vocabulary is None or value.dtype not in (torch.int64, torch.int32):
        return value
    return torch.randint(0, vocabulary, value.shape, dtype=value.dtype, device=value.device)
