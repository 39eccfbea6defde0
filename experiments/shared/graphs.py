"""Graphs that several studies ask about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracing import OpGraph, OpNode, Source, TensorSpec

if TYPE_CHECKING:
    from prenet_gnn.data.keys import GraphKey


def chain(length: int, *, alike: bool = False) -> OpGraph:
    """Linear layers one after the other; no two of the same width unless they shall be alike."""
    nodes = []
    for i in range(length):
        first = Source("node", i - 1) if i else Source("input", name="x")
        sources = (first, Source("param", name=f"{i}.weight"))
        width, wider = (64, 64) if alike else (64 + i, 65 + i)
        specs, out = (TensorSpec((8, width)), TensorSpec((wider, width))), TensorSpec((8, wider))
        nodes.append(
            OpNode(
                i, f"linear_{i}", "aten.linear.default", "linear", str(i), sources, specs, (out,),
                {}, (bool(i), True), True,
            )
        )  # fmt: skip
    return OpGraph(tuple(nodes), batch_size=8)


def cached_graph(key: GraphKey) -> OpGraph:
    """The graph of a measured row, with its attention; of a training row the training step."""
    from prenet_gnn.data.graphs import load_graph
    from prenet_gnn.encoding.attention import eager_attention
    from prenet_gnn.encoding.template import as_training
    from prenet_gnn.training.store import base_key
    from tracing.graph.loss import with_loss

    base = base_key(key)
    graph = load_graph(base)
    if key.attention == "eager":
        graph = eager_attention(graph)
    return with_loss(as_training(graph)) if (key.mode, base.mode) == ("train", "infer") else graph
