"""Which calls share memory, and which of them a gradient reaches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tracing.graph.specs import OpNode, ParamSpec, Source


def base_of(node: OpNode, bases: Sequence[int]) -> int:
    """The call whose output owns the memory that this call returns.

    Args:
        node: The call.
        bases: The same of all earlier calls.
    """
    if (node.is_view or node.inplace) and node.sources and node.sources[0].kind == "node":
        return bases[node.sources[0].node]
    return node.index


class GradientFlow:
    """Follows calls in order and says which tensors a gradient reaches.

    Attributes:
        nodes: The calls so far.
    """

    def __init__(self, parameters: Mapping[str, ParamSpec], nodes: Iterable[OpNode] = ()) -> None:
        """Starts with calls that are known already."""
        self._parameters = parameters
        self.nodes: list[OpNode] = []
        self._bases: list[int] = []
        self._overwritten: set[int] = set()
        for node in nodes:
            self.append(node)

    def append(self, node: OpNode) -> None:
        """Adds the next call and notes which memory it writes."""
        base = base_of(node, self._bases)
        self.nodes.append(node)
        self._bases.append(base)
        if node.inplace and node.differentiable and base != node.index:
            # what was written into depends on what was written, and so do all its views
            self._overwritten.add(base)

    def reaches(self, source: Source) -> bool:
        """Whether a gradient flows to this tensor."""
        if source.kind == "node":
            written = self._bases[source.node] in self._overwritten
            return self.nodes[source.node].differentiable or written
        if source.kind == "param":
            return self._parameters[source.name].requires_grad
        return source.kind == "input" and source.slot == 1


def mark_used(nodes: Sequence[OpNode], roots: Iterable[int]) -> list[OpNode]:
    """Takes the gradient from calls that no differentiated output depends on.

    A call that writes into a tensor is used when that tensor or a view of it is read later.
    """
    bases: list[int] = []
    for node in nodes:
        bases.append(base_of(node, bases))
    used = set(roots)
    owners = {bases[root] for root in used}
    for node in reversed(nodes):
        if node.index in used or (node.inplace and bases[node.index] in owners):
            used.add(node.index)
            read = [s.node for s in node.sources if s.kind == "node"]
            used.update(read)
            owners.update(bases[i] for i in read)
    return [
        node
        if node.index in used or not node.differentiable
        else replace(node, differentiable=False, needs_grad=(False,) * len(node.needs_grad))
        for node in nodes
    ]
