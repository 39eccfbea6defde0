"""Costs of every module with everything inside it: the rows that tables and pages show."""

from __future__ import annotations

from dataclasses import dataclass

from tracing.costs.storages import saved_by_node
from tracing.costs.totals import node_costs
from tracing.graph.data import GraphData
from tracing.views.units import metric


@dataclass(frozen=True, slots=True)
class ModuleRow:
    """Costs of one module with everything inside it.

    Attributes:
        module: Path, empty for the whole model.
        depth: Number of names in the path.
        calls: Operator calls.
        params: Parameters that belong to the module, each tensor once.
        forward_flops: FLOPs of the forward pass.
        backward_flops: FLOPs of the backward pass, without what checkpointing repeats.
        saved_bytes: What its calls keep for the backward pass.
        share: Part of all FLOPs, forward and backward, from 0 to 1.
    """

    module: str
    depth: int
    calls: int
    params: int
    forward_flops: int
    backward_flops: int
    saved_bytes: int
    share: float

    def figures(self) -> tuple[str, ...]:
        """Parameters, forward, backward, saved and share as text."""
        return (
            f"{self.params:,}",
            metric(self.forward_flops, "FLOP"),
            metric(self.backward_flops, "FLOP"),
            metric(self.saved_bytes, "B"),
            f"{self.share:.1%}",
        )


def _prefixes(path: str) -> list[str]:
    names = path.split(".") if path else []
    return ["", *(".".join(names[: i + 1]) for i in range(len(names)))]


def module_rows(graph: GraphData, depth: int | None = 2) -> list[ModuleRow]:
    """One row for every module down to `depth` (None: all), in the order in which they run."""
    sums: dict[str, list[int]] = {"": [0, 0, 0, 0, 0]}
    saved = saved_by_node(graph)
    for node, cost, keeps in zip(graph.nodes, node_costs(graph), saved, strict=True):
        values = (1, 0, cost.forward_flops, cost.backward_flops, keeps)
        for prefix in _prefixes(node.module):
            row = sums.setdefault(prefix, [0] * 5)
            row[:] = [old + new for old, new in zip(row, values, strict=True)]
    for parameter in graph.own_parameters:
        for prefix in _prefixes(parameter.name.rpartition(".")[0]):
            sums.setdefault(prefix, [0] * 5)[1] += parameter.numel
    total = max(sums[""][2] + sums[""][3], 1)
    rows = []
    for module in _in_tree_order(sums):
        calls, params, forward, backward, keeps = sums[module]
        level = len(_prefixes(module)) - 1
        if depth is None or level <= depth:
            share = (forward + backward) / total
            rows.append(ModuleRow(module, level, calls, params, forward, backward, keeps, share))
    return rows


def _in_tree_order(paths: dict[str, list[int]]) -> list[str]:
    """Every module directly behind its parent, siblings in the order they came."""
    children: dict[str, list[str]] = {}
    for path in paths:
        if path:
            children.setdefault(path.rpartition(".")[0], []).append(path)
    order, stack = [], [""]
    while stack:
        path = stack.pop()
        order.append(path)
        stack.extend(reversed(children.get(path, [])))
    return order
