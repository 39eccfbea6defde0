"""Bytes of every tensor of a graph under a precision."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from prenet_gnn.encoding.precision import FULL_BYTES, SINGLE, Lowered, lower, policy

if TYPE_CHECKING:
    from tracing import OpGraph, OpNode, Source, TensorSpec

# Kinds whose calls keep tensors of their own for the backward pass, in their own number format.
OWN_EXTRAS = ("activation", "attention", "rnn", "loss")
FLOATS = {2: "float16", 4: "float32", 8: "float64"}


class TensorBytes:
    """Bytes of every tensor under a precision."""

    def __init__(self, graph: OpGraph, precision: str, block: int) -> None:
        """Finds the format of every call; `block` is what the allocator rounds up to."""
        self.lowered: list[Lowered] = lower(graph.nodes, precision)
        self.single = SINGLE if policy(precision) == "amp" else FULL_BYTES[precision]
        self.autocast = policy(precision) == "amp"
        self._block = block

    def rounded(self, size: int) -> int:
        """Bytes of the block that the allocator gives for some bytes."""
        return size + -size % self._block

    def stored(self, spec: TensorSpec) -> int:
        """Bytes of a weight or input."""
        return self.rounded(spec.numel * self.stored_item(spec))

    def stored_item(self, spec: TensorSpec) -> int:
        """Bytes of an element of a weight or input."""
        scale = self.single if spec.dtype in ("float32", "complex64") else SINGLE
        return spec.item_bytes * scale // SINGLE

    def size(self, source: Source, spec: TensorSpec) -> int:
        """Bytes of any tensor of the graph."""
        if source.kind == "node":
            return self.rounded(self.lowered[source.node].item_out[source.slot] * spec.numel)
        return self.stored(spec)

    def cast(self, node: OpNode, position: int) -> int:
        """Bytes of the copy that autocast makes of an input; 0 for none."""
        low = self.lowered[node.index]
        if position not in low.casts:
            return 0
        return self.rounded(low.item_in[position] * node.input_specs[position].numel)

    def moved(self, node: OpNode) -> int:
        """Bytes that a call reads and writes."""
        low = self.lowered[node.index]
        items, specs = (*low.item_in, *low.item_out), (*node.input_specs, *node.output_specs)
        return sum(item * spec.numel for item, spec in zip(items, specs, strict=True))

    def with_own_extras(self, graph: OpGraph) -> OpGraph:
        """The graph with the formats written into calls that keep tensors of their own."""
        nodes = list(graph.nodes)
        for node in graph.nodes:
            if node.kind in OWN_EXTRAS and (node.inplace or node.kind != "activation"):
                nodes[node.index] = self._written(node)
        return graph.replace(nodes=tuple(nodes))

    def _written(self, node: OpNode) -> OpNode:
        low = self.lowered[node.index]
        inputs = zip(node.input_specs, low.item_in, node.sources, strict=True)
        outputs = zip(node.output_specs, low.item_out, strict=True)
        return replace(
            node,
            input_specs=tuple(
                spec if source.kind == "param" else _with_item(spec, item)
                for spec, item, source in inputs
            ),
            output_specs=tuple(_with_item(spec, item) for spec, item in outputs),
        )


def _with_item(spec: TensorSpec, item: int) -> TensorSpec:
    if spec.dtype not in FLOATS.values() or item not in FLOATS:
        return spec
    return replace(spec, dtype=FLOATS[item])
