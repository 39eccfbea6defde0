"""A graph for Graphviz."""

from __future__ import annotations

from tracing.costs.totals import node_costs
from tracing.graph.data import GraphData
from tracing.views.units import by, metric


def to_dot(graph: GraphData) -> str:
    """Graphviz: operators as boxes, tensors as arrows."""
    lines = [f"digraph {_quoted(graph.name)} {{", "  node [shape=box];"]
    for node, cost in zip(graph.nodes, node_costs(graph), strict=True):
        parts = [node.module, node.op, by(node.output.shape)]
        if cost.forward_flops:
            parts.append(metric(cost.forward_flops, "FLOP"))
        lines.append(f"  {node.index} [label={_quoted(chr(10).join(p for p in parts if p))}];")
    lines += [
        f"  {edge.source} -> {edge.target} [label={_quoted(metric(edge.bytes, 'B'))}];"
        for edge in graph.edges
    ]
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
