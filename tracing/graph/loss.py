"""The loss that a training step puts behind a model that returns none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tracing.graph.data import GraphData
from tracing.graph.gradients import GradientFlow
from tracing.graph.specs import Operand, OpNode, Source, TensorSpec

Graph = TypeVar("Graph", bound=GraphData)


def with_loss(graph: Graph) -> Graph:
    """A graph with the loss of a training step behind its outputs; see `add_loss`."""
    flow = GradientFlow({p.name: p for p in graph.parameters}, graph.nodes)
    outputs = [
        (source, graph.nodes[source.node].output_specs[source.slot])
        for source in graph.outputs
        if source.kind == "node"
    ]
    losses = add_loss(flow, outputs)
    return graph.replace(
        nodes=tuple(flow.nodes), outputs=tuple(source for source, _ in losses), retrace=None
    )


def add_loss(flow: GradientFlow, outputs: Sequence[Operand]) -> list[Operand]:
    """Appends cross-entropy for every output that looks like class scores, else a mean.

    Scores are `(N, C)` or, for dense prediction, `(N, C, *spatial)`.

    Returns:
        The loss terms; an output that needs no gradient gets none.
    """
    losses = []
    for source, spec in outputs:
        if spec.is_floating and flow.reaches(source):
            node = _loss(len(flow.nodes), source, spec)
            flow.append(node)
            losses.append((Source("node", node.index), node.output))
    return losses or list(outputs)


def _loss(index: int, source: Source, spec: TensorSpec) -> OpNode:
    """The call that turns one output into a number."""
    classes = len(spec.shape) in (2, 4, 5) and spec.shape[1] > 1
    labels = TensorSpec((spec.shape[0], *spec.shape[2:]), "int64") if classes else None
    return OpNode(
        index=index,
        name=f"loss_{index}",
        target="aten.cross_entropy_loss.default" if classes else "aten.mean.default",
        kind="loss" if classes else "reduce",
        module="loss",
        sources=(source, *([Source("input", name="target")] if labels else [])),
        input_specs=(spec, *([labels] if labels else [])),
        output_specs=(TensorSpec((), spec.dtype),),
        attrs={"reduction": 1} if classes else {},
        needs_grad=(True, False) if classes else (True,),
        differentiable=True,
    )
