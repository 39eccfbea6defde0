"""Rewrites fused attention as the separate operators that ran before fused kernels existed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tracing import OpNode, Source, TensorSpec

if TYPE_CHECKING:
    from tracing import OpGraph


# Fused kernels take queries of shape (batch, heads, length, channels); PyTorch runs any other as
# single operators (`check_tensor_shapes` in ATen's sdp_utils_cpp.h), which autocast does not reach.
# NeST, Twins and Hiera attend within windows and have one dimension more.
FUSED_RANK = 4


def eager_attention(graph: OpGraph) -> OpGraph:
    """The graph with every fused attention call split up.

    Scale, scores, mask, softmax, dropout and weighted sum become calls of their own, as in the
    attention modules of timm and transformers when fused attention is off.
    """
    return _split_up(graph, lambda node: True)[0]


def unfused_attention(graph: OpGraph, single: bool = False) -> tuple[OpGraph, list[int]]:
    """The graph with those attention calls split up that no fused kernel takes.

    Args:
        graph: Any graph.
        single: They compute in float32; see `workload.frameworks.computes_in_single`.

    Returns:
        The graph, and for each of its calls the number of the call it comes from.
    """
    made, origins = _split_up(
        graph, lambda node: len(node.tensor(0).shape) != FUSED_RANK, safe=single
    )
    if len(made.nodes) == len(graph.nodes):
        return graph, origins
    split = {origin for origin, parts in Counter(origins).items() if parts > 1}
    nodes = [
        replace(node, autocast="single" if single else "off") if origin in split else node
        for node, origin in zip(made.nodes, origins, strict=True)
    ]
    return made.replace(nodes=tuple(nodes)), origins


def _split_up(
    graph: OpGraph, chosen: Callable[[OpNode], bool], *, safe: bool = False
) -> tuple[OpGraph, list[int]]:
    if not any(_is_fused(node) and chosen(node) for node in graph.nodes):
        return graph, list(range(len(graph.nodes)))
    nodes: list[OpNode] = []
    origins: list[int] = []
    moved: dict[int, int] = {}
    for node in graph.nodes:
        sources = tuple(
            replace(s, node=moved[s.node]) if s.kind == "node" else s for s in node.sources
        )
        node = replace(node, index=len(nodes), sources=sources)
        nodes.extend(_split(node, safe) if _is_fused(node) and chosen(node) else [node])
        origins.extend([len(moved)] * (len(nodes) - len(origins)))
        moved[len(moved)] = len(nodes) - 1
    outputs = tuple(
        replace(s, node=moved[s.node]) if s.kind == "node" else s for s in graph.outputs
    )
    made = graph.replace(nodes=tuple(nodes), outputs=outputs, retrace=None, probe=None)
    return made, origins


def _is_fused(node: OpNode) -> bool:
    return node.kind == "attention" and len(node.input_specs) >= 3


def _split(node: OpNode, safe: bool) -> list[OpNode]:
    query, key, value = node.input_specs[:3]
    scores = TensorSpec((*query.shape[:-1], key.shape[-2]), query.dtype)
    keys = TensorSpec((*key.shape[:-2], key.shape[-1], key.shape[-2]), key.dtype)
    needs = (*node.needs_grad, False, False, False)
    start = node.index
    made: list[OpNode] = []

    def call(
        op: str,
        kind: str,
        inputs: list[tuple[Source, TensorSpec, bool]],
        out: TensorSpec,
        **attrs: object,
    ) -> tuple[Source, TensorSpec, bool]:
        grads = tuple(need for _, _, need in inputs)
        made.append(
            replace(
                node,
                index=start + len(made),
                name=f"{node.name}_{op.split('.')[0]}",
                target=f"aten.{op}",
                kind=kind,
                sources=tuple(s for s, _, _ in inputs),
                input_specs=tuple(s for _, s, _ in inputs),
                output_specs=(out,),
                attrs=dict(attrs),
                needs_grad=grads if node.differentiable else (False,) * len(grads),
                differentiable=node.differentiable and any(grads),
            )
        )
        return Source("node", made[-1].index), out, node.differentiable and any(grads)

    q = call("mul.Tensor", "binary", [(node.sources[0], query, needs[0])], query, other=1.0)
    k = (node.sources[1], keys, needs[1])
    if safe:
        k = call("mul.Tensor", "binary", [k], keys, other=1.0)
    score = call("matmul.default", "matmul", [q, k], scores)
    if len(node.input_specs) > 3:
        mask = (node.sources[3], node.input_specs[3], needs[3])
        score = call("add.Tensor", "binary", [score, mask], scores)
    weights = call("softmax.int", "softmax", [score], scores, dim=-1)
    if safe:
        plain = (weights[0], weights[1], False)
        masked = call("isneginf.default", "unary", [plain], replace(scores, dtype="bool"))
        rows = replace(scores, shape=(*scores.shape[:-1], 1), dtype="bool")
        rows_masked = call("all.dim", "reduce", [masked], rows)
        weights = call("where.self", "binary", [rows_masked, weights], scores)
    rate = node.attrs.get("dropout_p", 0.0)
    weights = call("dropout.default", "dropout", [weights], scores, p=rate, train=bool(rate))
    call("matmul.default", "matmul", [weights, (node.sources[2], value, needs[2])], node.output)
    return made
