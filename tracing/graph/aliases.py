"""Which calls share memory, and which of them a gradient reaches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tracing.graph.specs import ITEM_BYTES, OpNode, TensorSpec


def base_of(node: OpNode, bases: Sequence[int]) -> int:
    """The call whose output owns the memory that this call returns.

    Args:
        node: The call.
        bases: The same of all earlier calls.
    """
    view = node.kind == "view" and not node.attrs.get("copies")
    if (view or node.inplace) and node.sources and node.sources[0].kind == "node":
        return bases[node.sources[0].node]
    return node.index


def mark_used(nodes: Iterable[OpNode], roots: Iterable[int]) -> list[OpNode]:
    """Takes the gradient from calls that no differentiated output depends on.

    A call that writes into a tensor is used when that tensor or a view of it is read later.
    """
    listed = list(nodes)
    bases: list[int] = []
    for node in listed:
        bases.append(base_of(node, bases))
    used = set(roots)
    owners = {bases[root] for root in used}
    for node in reversed(listed):
        if node.index in used or (node.inplace and bases[node.index] in owners):
            used.add(node.index)
            read = [s.node for s in node.sources if s.kind == "node"]
            used.update(read)
            owners.update(bases[i] for i in read)
    return [
        node
        if node.index in used or not node.differentiable
        else replace(node, differentiable=False, needs_grad=(False,) * len(node.needs_grad))
        for node in listed
    ]


def settle_copies(nodes: Sequence[OpNode]) -> tuple[OpNode, ...]:
    """Takes back copies behind fused attention that exist on the device of the trace alone.

    A fused kernel lays its output out head by head within each position, so that merging the heads
    is a view; on `meta` and in the math kernel it is a copy.
    """
    result = list(nodes)
    for node in nodes:
        if node.kind == "view" and node.attrs.get("copies") and _behind_attention(result, node):
            attrs = {name: value for name, value in node.attrs.items() if name != "copies"}
            result[node.index] = replace(node, attrs=attrs)
    return tuple(result)


def _behind_attention(nodes: Sequence[OpNode], node: OpNode) -> bool:
    if len(node.output.shape) >= len(node.tensor(0).shape):
        return False
    first = nodes[node.inputs[0]] if node.inputs[0] >= 0 else None
    if first is None or first.op not in ("transpose", "permute") or first.inputs[0] < 0:
        return False
    dims = first.attrs.get("dims") or [first.attrs.get("dim0"), first.attrs.get("dim1")]
    merged = tuple(dims) in ((1, 2), (2, 1), (0, 2, 1, 3), (2, 0, 1, 3))
    kernel = nodes[first.inputs[0]]
    return merged and kernel.kind == "attention" and kernel.attrs.get("backend") != "math"


def unknown_dtypes(specs: Iterable[TensorSpec]) -> set[str]:
    """Number formats whose size is not known."""
    return {spec.dtype for spec in specs} - set(ITEM_BYTES)
