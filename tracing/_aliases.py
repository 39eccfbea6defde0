"""Which calls share memory, and which of them a gradient reaches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tracing.specs import ITEM_BYTES, OpNode, TensorSpec


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


def unknown_dtypes(specs: Iterable[TensorSpec]) -> set[str]:
    """Number formats whose size is not known."""
    return {spec.dtype for spec in specs} - set(ITEM_BYTES)
