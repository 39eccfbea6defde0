"""A graph for networkx, and the GraphML that networkx writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracing.costs.totals import node_costs
from tracing.graph.data import GraphData

if TYPE_CHECKING:
    import networkx


def to_networkx(graph: GraphData) -> networkx.MultiDiGraph[int]:
    """A networkx multigraph with costs on nodes and tensor sizes on edges."""
    import networkx as nx

    result: networkx.MultiDiGraph[int] = nx.MultiDiGraph(
        batch_size=graph.batch_size, mode=graph.mode, model=str(graph.meta.get("model", ""))
    )
    for node, cost in zip(graph.nodes, node_costs(graph), strict=True):
        result.add_node(
            node.index,
            name=node.name,
            target=node.target,
            kind=node.kind,
            module=node.module,
            shape=str(list(node.output.shape)),
            dtype=node.output.dtype,
            forward_flops=cost.forward_flops,
            backward_flops=cost.backward_flops,
            forward_bytes=cost.forward_bytes,
            backward_bytes=cost.backward_bytes,
        )
    for edge in graph.edges:
        result.add_edge(
            edge.source,
            edge.target,
            bytes=edge.bytes,
            shape=str(list(edge.spec.shape)),
            dtype=edge.spec.dtype,
        )
    return result


def to_graphml(graph: GraphData) -> str:
    """GraphML, as networkx writes it."""
    import networkx as nx

    return "\n".join(nx.generate_graphml(to_networkx(graph))) + "\n"
