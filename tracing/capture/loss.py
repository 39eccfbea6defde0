"""The loss that a training step puts behind a model that returns none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracing.graph.specs import OpNode, Source, TensorSpec

if TYPE_CHECKING:
    from tracing.capture.builder import Builder
    from tracing.graph.op_graph import OpGraph

Output = tuple[Source, TensorSpec]


def add_loss(builder: Builder, outputs: list[Output]) -> list[Output]:
    """Appends cross-entropy for every output that looks like class scores, else a mean.

    Scores are `(N, C)` or, for dense prediction, `(N, C, *spatial)`.

    Returns:
        The loss terms; an output that needs no gradient gets none.
    """
    losses = []
    for source, spec in outputs:
        if not spec.is_floating or not builder.source_needs_grad(source):
            continue
        losses.append(_loss(builder, source, spec))
    return losses or outputs


def _loss(builder: Builder, source: Source, spec: TensorSpec) -> Output:
    classes = len(spec.shape) in (2, 4, 5) and spec.shape[1] > 1
    sources, specs = [source], [spec]
    attrs = {}
    if classes:
        sources.append(Source("input", name="target"))
        specs.append(TensorSpec((spec.shape[0], *spec.shape[2:]), "int64"))
        attrs = {"reduction": 1}
    target = "aten.cross_entropy_loss.default" if classes else "aten.mean.default"
    index = len(builder.nodes)
    out = TensorSpec((), spec.dtype)
    builder.append(
        OpNode(
            index=index,
            name=f"loss_{index}",
            target=target,
            kind="loss" if classes else "reduce",
            module="loss",
            sources=tuple(sources),
            input_specs=tuple(specs),
            output_specs=(out,),
            attrs=attrs,
            needs_grad=(True, False)[: len(sources)],
            differentiable=True,
        )
    )
    return Source("node", index, 0), out


def with_loss(graph: OpGraph) -> OpGraph:
    """A graph with the loss of a training step behind its outputs; see `add_loss`."""
    from tracing.capture.builder import Builder

    builder = Builder({p.name: p for p in graph.parameters})
    for node in graph.nodes:
        builder.append(node)
    outputs = [
        (source, graph.nodes[source.node].output_specs[source.slot])
        for source in graph.outputs
        if source.kind == "node"
    ]
    losses = add_loss(builder, outputs)
    return graph.replace(
        nodes=tuple(builder.nodes), outputs=tuple(source for source, _ in losses), retrace=None
    )
