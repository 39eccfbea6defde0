"""Strides of views, where a kernel has to copy an operand that is no plain matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tracing.graph.specs import OpNode

# View operators and the names of the arguments that say what they do, in calling order.
VIEWS = {
    "permute": ("dims",), "transpose": ("dim0", "dim1"), "t": (), "select": ("dim", "index"),
    "unsqueeze": ("dim",), "squeeze": ("dim",), "expand": ("size",), "view": ("size",),
    "reshape": ("shape",), "unbind": ("dim",), "chunk": ("chunks", "dim"), "mT": (),
    "split": ("split_size", "dim"), "slice": ("dim", "start", "end", "step"),
    "flatten": ("start_dim", "end_dim"), "unflatten": ("dim", "sizes"),
}  # fmt: skip
_DEFAULTS = {"dim": 0, "start": 0, "start_dim": 0, "end_dim": -1, "step": 1, "end": 2**62}


def _contiguous(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def layout(nodes: Sequence[OpNode], index: int, slot: int = 0) -> torch.Tensor:
    """A meta tensor with the strides of one output of a call."""
    chain: list[tuple[OpNode, int]] = []
    node = nodes[index]
    while node.is_view and node.op in VIEWS:
        chain.append((node, slot))
        source = node.sources[0]
        if source.kind != "node":
            break
        node, slot = nodes[source.node], source.slot
    if not chain:
        return _contiguous(node.output_specs[slot].shape)
    tensor = _contiguous(chain[-1][0].input_specs[0].shape)
    for view, position in reversed(chain):
        tensor = apply_view(view, position, tensor)
    return tensor


def apply_view(node: OpNode, slot: int, tensor: torch.Tensor) -> torch.Tensor:
    """One output of a view of a meta tensor; a contiguous one where the view cannot be made."""
    result: Any
    shape = node.output_specs[slot].shape
    names = VIEWS[node.op]
    values = [node.attrs.get(name, _DEFAULTS.get(name)) for name in names]
    try:
        if node.op in ("view", "reshape", "flatten", "unflatten"):
            result = tensor.view(shape)
        elif node.op == "slice":
            dim, start, end, step = values
            result = torch.ops.aten.slice.Tensor(tensor, dim, start, end, step)
        elif node.op == "mT":
            result = tensor.transpose(-1, -2)
        elif node.op == "squeeze" and values[0] is None:
            result = tensor.squeeze()
        else:
            result = getattr(tensor, node.op)(*values)
    except (RuntimeError, TypeError, IndexError):
        return _contiguous(shape)
    if isinstance(result, list | tuple):
        result = result[slot]
    assert isinstance(result, torch.Tensor)
    return result if tuple(result.shape) == shape else _contiguous(shape)


def operand_copy(nodes: Sequence[OpNode], node: OpNode, position: int) -> bool:
    """Whether a product copies this operand first to lay its matrices out one after the other."""
    source, spec = node.sources[position], node.input_specs[position]
    if source.kind not in ("node", "input") or len(spec.shape) < 3:
        return False
    shape = _folded(node, position)
    if shape is None:
        return False
    tensor = _contiguous(spec.shape)
    if source.kind == "node":
        tensor = layout(nodes, source.node, source.slot)
    try:
        tensor.expand(*shape[0], *spec.shape[-2:]).view(shape[1])
    except RuntimeError:
        return True
    return False


def _folded(node: OpNode, position: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Batch shape the operand is expanded to, and the shape the kernel wants it viewed as."""
    spec = node.input_specs[position]
    if node.kind == "linear" and position == 0 and node.op == "linear":
        return spec.shape[:-2], (-1, spec.shape[-1])
    if node.kind == "attention" and position == 2:
        return spec.shape[:-2], (-1, *spec.shape[-2:])
    if node.op != "matmul":
        return None
    other = node.input_specs[1 - position]
    if len(other.shape) < 3:
        return (spec.shape[:-2], (-1, spec.shape[-1])) if position == 0 else None
    batch = _broadcast(spec.shape[:-2], other.shape[:-2])
    return batch, (-1, *spec.shape[-2:])


def _broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    longest = max(len(first), len(second))
    padded = [(1,) * (longest - len(shape)) + shape for shape in (first, second)]
    return tuple(b if a == 1 else a for a, b in zip(*padded, strict=True))
