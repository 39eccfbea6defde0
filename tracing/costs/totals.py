"""Costs of a whole graph, call by call and summed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

from tracing.costs.formulas import has_formula
from tracing.costs.node import NodeCost, node_cost
from tracing.costs.recompute import recomputed
from tracing.graph.data import GraphData

COLUMNS = (
    "forward_flops", "backward_flops", "forward_bytes", "backward_bytes", "elementwise_ops",
)  # fmt: skip


def node_costs(graph: GraphData) -> tuple[NodeCost, ...]:
    """Cost of every call, parallel to `nodes`."""
    return tuple([node_cost(node) for node in graph.nodes])


def columns(costs: Sequence[NodeCost]) -> dict[str, list[int]]:
    """Costs as columns, one entry per call."""
    return {name: [int(getattr(cost, name)) for cost in costs] for name in COLUMNS}


def grouped(costs: Sequence[NodeCost], groups: Iterable[str]) -> dict[str, NodeCost]:
    """Costs summed over groups of calls, given the group of every call."""
    names = [field.name for field in fields(NodeCost)]
    sums: dict[str, list[int]] = {}
    for group, cost in zip(groups, costs, strict=True):
        row = sums.setdefault(group, [0] * len(names))
        row[:] = [total + getattr(cost, name) for total, name in zip(row, names, strict=True)]
    return {group: NodeCost(*row) for group, row in sums.items()}


def recomputed_flops(graph: GraphData, costs: Sequence[NodeCost]) -> int:
    """Forward FLOPs that activation checkpointing repeats in the backward pass."""
    return sum(costs[i].forward_flops for i in recomputed(graph.nodes))


def unknown_ops(graph: GraphData) -> dict[str, int]:
    """Operators without a cost formula and how often each is called."""
    listed: dict[str, int] = graph.meta.get("unknown_ops", {})
    return {name: count for name, count in listed.items() if not has_formula(name)}
