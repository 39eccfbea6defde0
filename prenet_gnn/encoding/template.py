"""The distinct calls of a graph, their numbers and their neighbours.

Deep networks repeat their blocks. Two calls that look alike and whose neighbourhoods look alike up
to as many steps as the network passes messages get the same embedding, so each class of such calls
is computed once and counted (colour refinement, Weisfeiler and Leman 1968). This changes no result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from prenet_gnn.encoding.attention import unfused_attention
from prenet_gnn.encoding.fusion import Fusion, fusions
from prenet_gnn.encoding.precision import Lowered, lower, policy
from tracing.costs.memory_format import InBothLayouts, in_both_layouts
from tracing.costs.saved import dropout_active

if TYPE_CHECKING:
    from tracing import OpGraph, OpNode

# Message passing steps the classes are exact for.
ROUNDS = 2
# Attention as it ran before fused kernels: scale, scores, softmax, dropout, weighted sum.
EAGER = "eager"


@dataclass(frozen=True)
class Template:
    """The distinct calls of one graph under one precision policy, at any batch size.

    Attributes:
        graph: The graph the calls come from, at its own batch size; attention that no fused kernel
            takes is split up.
        nodes: One call of every class.
        lowered: Number formats, parallel to `nodes`.
        counts: How many calls of the graph each class stands for.
        edges: `(2, E)` producer and consumer class.
        edge_weight: How many tensors go along each edge of a class.
        members: For every call of the graph its class, -1 for free calls.
        origins: For every call of the graph the number of the call of the given graph it is of.
        memory_formats: Those of the inputs in the plain and in the channels-last layout, parallel
            to `nodes`.
        views: Calls that return their input or a view of it; they cost time on the host.
        fusion: What a compiler can fuse, parallel to `nodes`.
    """

    graph: OpGraph
    nodes: tuple[OpNode, ...]
    lowered: tuple[Lowered, ...]
    counts: np.ndarray
    edges: np.ndarray
    edge_weight: np.ndarray
    members: np.ndarray
    origins: np.ndarray
    views: int
    memory_formats: tuple[InBothLayouts, ...]
    fusion: tuple[Fusion, ...]


def is_free(node: OpNode) -> bool:
    """Whether a call is billed nothing of its own.

    That is a view, a dropout that drops nothing (of rate zero, or in evaluation: it returns its
    input itself) and batch norm's count of batches, which is part of what a batch norm in training
    mode is billed (`encoding.work`), whether or not the trace shows it.
    """
    if node.kind in ("view", "dropout"):
        return _returns_input(node)
    return bool(node.sources) and node.sources[0].name.endswith("num_batches_tracked")


def _returns_input(node: OpNode) -> bool:
    """Whether a view copies nothing, or a dropout drops nothing."""
    return not (node.attrs.get("copies") if node.kind == "view" else dropout_active(node))


def _producers(graph: OpGraph) -> list[list[tuple[int, int]]]:
    """For every call the working calls that feed it, looking through views."""
    through: list[list[tuple[int, int]]] = []
    for node in graph.nodes:
        feeds: list[tuple[int, int]] = []
        for source in node.sources:
            if source.kind != "node":
                continue
            if is_free(graph.nodes[source.node]):
                feeds.extend(through[source.node])
            else:
                feeds.append((source.node, source.slot))
        through.append(feeds)
    return through


def _fusions(
    graph: OpGraph, through: list[list[tuple[int, int]]], working: list[int]
) -> dict[int, Fusion]:
    """What a compiler can fuse, by the number of the call."""
    places = {index: place for place, index in enumerate(working)}
    producers = []
    for index in working:
        inputs: list[list[int]] = []
        for source in graph.nodes[index].sources:
            if source.kind != "node":
                inputs.append([])
            elif source.node in places:
                inputs.append([places[source.node]])
            else:
                inputs.append([places[i] for i, _ in through[source.node]])
        producers.append(inputs)
    found = fusions([graph.nodes[i] for i in working], producers)
    return dict(zip(working, found, strict=True))


def _signature(node: OpNode, low: Lowered, lies: InBothLayouts, fusion: Fusion) -> Hashable:
    return (
        lies,
        fusion,
        node.target,
        tuple((s.shape, s.dtype) for s in node.input_specs),
        tuple((s.shape, s.dtype) for s in node.output_specs),
        repr(node.attrs),
        tuple(s.kind for s in node.sources),
        node.needs_grad,
        node.differentiable,
        bool(node.region),
        low.item_in,
        low.item_out,
        low.casts,
    )


def build_template(
    graph: OpGraph, precision: str, rounds: int = ROUNDS, single_attention: bool = False
) -> Template:
    """Finds the classes of equal calls.

    Args:
        graph: Any graph.
        precision: A precision of `Workload`; all `amp_*` share a template.
        rounds: Message passing steps that must see equal neighbourhoods.
        single_attention: Attention outside of fused kernels computes in float32; see
            `workload.frameworks.computes_in_single`.
    """
    graph, origins = unfused_attention(graph, single_attention)
    lowered = lower(graph.nodes, precision)
    feeds = _producers(graph)
    working = [node.index for node in graph.nodes if not is_free(node)]
    users: dict[int, list[int]] = {index: [] for index in working}
    for index in working:
        for producer, _ in feeds[index]:
            users[producer].append(index)
    lies = in_both_layouts(graph.nodes)
    fusion = _fusions(graph, feeds, working)
    colour: dict[int, int] = _number(
        {i: _signature(graph.nodes[i], lowered[i], lies[i], fusion[i]) for i in working}
    )
    for _ in range(rounds):
        colour = _number(
            {
                i: (
                    colour[i],
                    tuple(sorted(colour[p] for p, _ in feeds[i])),
                    tuple(sorted(colour[u] for u in users[i])),
                )
                for i in working
            }
        )
    # the first call of every class stands for it
    first: dict[int, int] = {}
    for index in working:
        first.setdefault(colour[index], index)
    chosen = tuple(first.values())
    place = {c: k for k, c in enumerate(first)}
    class_of = {index: place[colour[index]] for index in working}
    members = np.full(len(graph.nodes), -1, dtype=np.int64)
    members[working] = [class_of[index] for index in working]
    edges, weight = _edges(chosen, class_of, feeds, users)
    return Template(
        graph=graph,
        nodes=tuple(graph.nodes[i] for i in chosen),
        lowered=tuple(lowered[i] for i in chosen),
        counts=np.bincount(members[members >= 0], minlength=len(first)).astype(np.float64),
        edges=edges,
        edge_weight=weight,
        members=members,
        origins=np.array(origins, dtype=np.int64),
        memory_formats=tuple(lies[i] for i in chosen),
        views=sum(n.kind in ("view", "dropout") and is_free(n) for n in graph.nodes),
        fusion=tuple(fusion[i] for i in chosen),
    )


def _edges(
    chosen: Sequence[int],
    class_of: dict[int, int],
    feeds: list[list[tuple[int, int]]],
    users: dict[int, list[int]],
) -> tuple[np.ndarray, np.ndarray]:
    """Edges between classes `(2, E)`, and tensors along them for a call of either end `(E, 2)`."""
    into, out_of = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for index in chosen:
        own = class_of[index]
        into.update((class_of[producer], own) for producer, _ in feeds[index])
        out_of.update((own, class_of[user]) for user in users[index])
    pairs = sorted(set(into) | set(out_of))
    weight = np.array([[into[pair], out_of[pair]] for pair in pairs], dtype=np.float32)
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T, weight.reshape(-1, 2)


def _number(keys: dict[int, Hashable]) -> dict[int, int]:
    numbers: dict[Hashable, int] = {}
    return {i: numbers.setdefault(key, len(numbers)) for i, key in keys.items()}


def template_key(precision: str) -> str:
    """Precisions with equal templates have equal keys."""
    return policy(precision)


def as_training(graph: OpGraph) -> OpGraph:
    """An inference graph as it runs in training mode: batch statistics and active dropout.

    Only for models whose Python takes the same path in both modes.
    """
    nodes = []
    for node in graph.nodes:
        attrs = dict(node.attrs)
        if node.kind == "batch_norm" and "training" in attrs:
            attrs["training"] = True
        if node.kind == "dropout" and "train" in attrs:
            attrs["train"] = True
        nodes.append(replace(node, attrs=attrs))
    return graph.replace(nodes=tuple(nodes), mode="train")
