"""A call of a model with its tensors taken out, so that others can be put in their place."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tracing.errors import TraceError

# Name of the user's model inside the wrapper.
INNER = "model"
_PLAIN = (str, bytes, int, float, complex, bool, torch.dtype, torch.device, torch.Size)


def fields_of(value: Any) -> dict[str, Any]:
    """The attributes an object stores, whether in `__dict__` or in slots."""
    fields = dict(getattr(value, "__dict__", None) or {})
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(value, name):
                fields.setdefault(name, getattr(value, name))
    return fields


class Shell:
    """What is left of a value when its tensors are taken out; puts others back in their place.

    Containers known to `torch.utils._pytree` are opened, and so is any object that holds tensors
    in its attributes (dataclasses, caches, batches of graphs).

    Attributes:
        tensors: The tensors, in order.
        names: One name for each tensor.
    """

    def __init__(self, value: Any, path: str = "", seen: frozenset[int] = frozenset()) -> None:
        """Takes a value apart."""
        self.tensors: list[torch.Tensor] = []
        self.names: list[str] = []
        flat, self._tree = pytree.tree_flatten_with_path(value)
        self._parts: list[Any] = []
        for keys, leaf in flat:
            name = path + "".join(str(key) for key in keys)
            self._parts.append(self._part(leaf, name, seen))

    def _part(self, leaf: Any, name: str, seen: frozenset[int]) -> Any:
        if isinstance(leaf, torch.Tensor):
            self.tensors.append(leaf)
            self.names.append(name)
            return _HERE
        if leaf is None or isinstance(leaf, (*_PLAIN, nn.Module, type)) or id(leaf) in seen:
            return leaf
        fields = fields_of(leaf)
        if not fields:
            return leaf
        inner = Shell(fields, name, seen | {id(leaf)})
        if not inner.tensors:
            return leaf
        self.tensors += inner.tensors
        self.names += inner.names
        return _Object(leaf, inner)

    def fill(self, tensors: Iterable[torch.Tensor]) -> Any:
        """The value with other tensors."""
        given = iter(tensors)
        leaves = []
        for part in self._parts:
            if part is _HERE:
                leaves.append(next(given))
            elif isinstance(part, _Object):
                leaves.append(part.fill([next(given) for _ in part.inner.tensors]))
            else:
                leaves.append(part)
        return pytree.tree_unflatten(leaves, self._tree)


class _HERE:
    """Marks the place of a tensor (a class, because copies of a class are itself)."""


class _Object:
    """An object with tensors in its attributes."""

    def __init__(self, value: Any, inner: Shell) -> None:
        """Keeps the object to copy and the shell of its attributes."""
        self.value, self.inner = value, inner

    def fill(self, tensors: list[torch.Tensor]) -> Any:
        """A shallow copy of the object with other tensors."""
        result = copy.copy(self.value)
        for name, item in self.inner.fill(tensors).items():
            object.__setattr__(result, name, item)
        return result


class ModelCall:
    """Arguments of one call, with names for their tensors."""

    def __init__(self, args: Any, kwargs: Any) -> None:
        """Checks the arguments and takes the tensors out."""
        if isinstance(args, torch.Tensor):
            args = (args,)
        if not isinstance(args, tuple | list):
            raise TraceError(
                f"args must be a tuple of the model's inputs, not {type(args).__name__}; "
                "write (x,) for one"
            )
        if kwargs is not None and not isinstance(kwargs, Mapping):
            raise TraceError(f"kwargs must be a dict of named inputs, not {type(kwargs).__name__}")
        self.shell = Shell((tuple(args), dict(kwargs or {})))
        self.tensors = self.shell.tensors

    @property
    def inputs(self) -> dict[str, torch.Tensor]:
        """The tensors by name."""
        return dict(zip(self._names(), self.tensors, strict=True))

    def _names(self) -> list[str]:
        """Names such as `0`, `labels` or `targets[0]['boxes']`, unique within the call."""
        result: list[str] = []
        for name in self.shell.names:
            # the first key says whether it is a positional or a named input
            first, _, rest = name[3:].strip("[").partition("]")
            short = (first.strip("'\"") + rest) or "input"
            while short in result:
                short = f"{short}_{len(result)}"
            result.append(short)
        return result

    def resized(self, size: int) -> dict[str, torch.Tensor]:
        """The tensors with another batch size; those without the batch dimension stay."""
        old = batch_size_of(self.tensors)
        return {
            name: _resize(t, size) if t.dim() and t.shape[0] == old else t
            for name, t in self.inputs.items()
        }


def batch_size_of(tensors: Iterable[torch.Tensor]) -> int:
    """The first dimension of the first tensor that has one; 0 when there is none."""
    return next((int(t.shape[0]) for t in tensors if t.dim() > 0), 0)


def _resize(tensor: torch.Tensor, size: int) -> torch.Tensor:
    shape = (size, *tensor.shape[1:])
    if tensor.device.type == "meta":
        return torch.empty(shape, dtype=tensor.dtype, device="meta")
    return tensor[:1].expand(shape)


class Flat(nn.Module):
    """Calls a model with flattened tensors and returns only tensors."""

    model: nn.Module

    def __init__(self, model: nn.Module, shell: Shell) -> None:
        """Keeps what the flat tensors have to be put back into."""
        super().__init__()
        self.model = model
        self.training = model.training
        self._shell = shell

    def forward(self, *tensors: torch.Tensor) -> dict[str, Any]:
        """Rebuilds the call, runs it and picks the tensors out of whatever comes back."""
        args, kwargs = self._shell.fill(tensors)
        out = self.model(*args, **kwargs)
        loss = find_loss(out)
        if loss is not None and self.training:
            return {"loss": loss}
        return {"out": all_tensors(out)}


def find_loss(out: Any) -> torch.Tensor | None:
    """The scalar that a model's training output offers as its loss."""
    loss = out.get("loss") if isinstance(out, Mapping) else getattr(out, "loss", None)
    if isinstance(loss, torch.Tensor) and loss.dim() == 0:
        return loss
    if isinstance(out, Mapping) and out:
        # detection models return one scalar loss per part
        parts = list(out.values())
        if all(isinstance(v, torch.Tensor) and v.dim() == 0 for v in parts):
            return torch.stack(parts).sum()
    return None


def all_tensors(value: Any, seen: set[int] | None = None) -> list[torch.Tensor]:
    """Every tensor inside a value, whatever it is."""
    seen = set() if seen is None else seen
    if isinstance(value, torch.Tensor):
        return [value]
    if value is None or isinstance(value, (*_PLAIN, nn.Module, type)) or id(value) in seen:
        return []
    seen.add(id(value))
    if isinstance(value, Mapping):
        items: Iterable[Any] = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        items = value
    else:
        items = fields_of(value).values()
    return [tensor for item in items for tensor in all_tensors(item, seen)]
