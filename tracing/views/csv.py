"""A graph as comma-separated values: one line for every call or for every module."""

from __future__ import annotations

import csv
import io
from dataclasses import fields

from tracing.costs.storages import saved_by_node
from tracing.costs.totals import columns, node_costs
from tracing.graph.data import GraphData
from tracing.views.modules import ModuleRow, module_rows
from tracing.views.units import by


def to_csv(graph: GraphData) -> str:
    """One line for every operator call."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    costs = columns(node_costs(graph))
    names = ["index", "name", "module", "operator", "kind", "inputs", "shape", "dtype"]
    writer.writerow([*names, *costs, "saved_bytes"])
    for i, (node, saved) in enumerate(zip(graph.nodes, saved_by_node(graph), strict=True)):
        inputs = " ".join(str(index) for index in node.inputs if index >= 0)
        facts = [
            i,
            node.name,
            node.module,
            node.target,
            node.kind,
            inputs,
            by(node.output.shape),
            node.output.dtype,
        ]
        writer.writerow([*facts, *(values[i] for values in costs.values()), saved])
    return buffer.getvalue()


def modules_csv(graph: GraphData, depth: int | None = None) -> str:
    """One line for every module."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    names = [field.name for field in fields(ModuleRow)]
    writer.writerow(names)
    for row in module_rows(graph, depth):
        writer.writerow([getattr(row, name) for name in names])
    return buffer.getvalue()
