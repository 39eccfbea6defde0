"""How arguments of recorded calls are read."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from tracing.graph.specs import Operand, Source, TensorSpec


def size_of(size: Any) -> int:
    """A dimension as a number; one that depends on values counts as large as it can get."""
    if isinstance(size, int):
        return size
    try:
        return int(size)
    except Exception:
        return _upper_bound(size)


def _upper_bound(size: Any) -> int:
    try:
        upper = size.node.shape_env.bound_sympy(size.node.expr).upper
        # without a bound the range ends at the largest integer or at infinity
        return int(upper) if upper.is_finite and int(upper) < 2**48 else 1
    except (AttributeError, TypeError, ValueError, OverflowError):
        return 1


def is_open(tensor: torch.Tensor) -> bool:
    """Whether a size of the tensor depends on values and has no hint."""
    return any(_open_size(size) for size in tensor.shape)


def _open_size(size: Any) -> bool:
    if isinstance(size, int):
        return False
    try:
        int(size)
    except Exception:
        return True
    return False


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Shape and dtype of a (fake) tensor."""
    shape = tuple([size_of(size) for size in tensor.shape])
    return TensorSpec(shape, str(tensor.dtype).removeprefix("torch."))


def target_name(target: Any) -> str:
    """Name of what a call runs, as `namespace.operator.overload`."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    name = getattr(target, "name", None)
    text = name() if callable(name) else getattr(target, "__name__", str(target))
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{text}.default"
    return f"{getattr(target, '__module__', 'python').split('.')[0]}.{text}.default"


def is_operand(value: Any) -> bool:
    """Whether a value of the walk stands for a tensor."""
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], Source)


def flat(value: Any) -> list[Any]:
    """The leaves of nested lists, tuples and dicts."""
    if is_operand(value):
        return [value]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in flat(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in flat(item)]
    return [value]


def like(value: Any, results: Any) -> Any:
    """The structure of `value` with its tensors replaced by `results`, in order."""
    if isinstance(value, torch.Tensor):
        return next(results)
    if isinstance(value, list | tuple):
        return [like(item, results) for item in value]
    return value


def split_arguments(target: Any, args: Any, kwargs: Any) -> tuple[list[Operand], dict[str, Any]]:
    """Separates the tensors of a call from its other arguments, which get their schema names."""
    schema = getattr(target, "_schema", None)
    names = [a.name for a in schema.arguments] if schema is not None else []
    tensors: list[Operand] = []
    attrs: dict[str, Any] = {}
    named = [(names[i] if i < len(names) else f"arg{i}", a) for i, a in enumerate(args)]
    for name, value in [*named, *kwargs.items()]:
        if is_operand(value):
            tensors.append(value)
        elif isinstance(value, list | tuple) and any(is_operand(v) for v in value):
            tensors.extend(v for v in value if is_operand(v))
        elif value is not None and not name.startswith("cudnn_enable"):
            plain = _plain(value)
            if plain is not None:
                attrs[name] = plain
    return tensors, attrs


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | float | str):
        return value if not isinstance(value, float) or math.isfinite(value) else str(value)
    if isinstance(value, torch.SymInt):
        return size_of(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    return None


def copies(node: fx.Node) -> bool:
    """Whether a reshape or contiguous call has to copy, judged by the strides of its input."""
    source = next((a for a in node.args if isinstance(a, fx.Node)), None)
    value, out = source.meta.get("val") if source is not None else None, node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(out, torch.Tensor):
        return False
    if is_open(value) or is_open(out):
        return True
    try:
        if value.is_contiguous():
            return False
        if value.shape == out.shape:
            return value.stride() != out.stride()
        strides = tuple(int(s) for s in value.stride())
        shape = tuple(int(s) for s in value.shape)
        meta = torch.empty_strided(shape, strides, device="meta")
        meta.view(tuple(int(s) for s in out.shape))
    except RuntimeError:
        return True
    return False
