"""Copies behind fused attention that exist on the device of the trace alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracing.graph.specs import OpNode

# Swaps of heads and positions, as the dimensions that a transpose or permute names.
_SWAPS = ((1, 2), (2, 1), (0, 2, 1, 3), (2, 0, 1, 3))


def settle_copies(nodes: Sequence[OpNode]) -> tuple[OpNode, ...]:
    """Takes those copies back.

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
    kernel = nodes[first.inputs[0]]
    fused = kernel.kind == "attention" and kernel.attrs.get("backend") != "math"
    return fused and tuple(dims) in _SWAPS
