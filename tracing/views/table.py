"""Graphs for people: a table by module, and files for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

from tracing.costs.storages import Kept, Key
from tracing.errors import TraceError
from tracing.graph.op_graph import OpGraph
from tracing.views.convert import to_networkx, write_atomic

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")


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


def _prefixes(path: str) -> list[str]:
    names = path.split(".") if path else []
    return ["", *(".".join(names[: i + 1]) for i in range(len(names)))]


def saved_by_node(graph: OpGraph) -> list[int]:
    """Bytes each call keeps for the backward pass, every storage at the first that keeps it."""
    if graph.mode != "train":
        return [0] * len(graph.nodes)
    kept = Kept(graph)
    seen: set[Key] = set()
    result = []
    for saved in kept.by_node:
        new = {key: size for key, size in saved.items() if key in kept.all and key not in seen}
        seen.update(new)
        result.append(sum(new.values()))
    return result


def module_rows(graph: OpGraph, depth: int | None = 2) -> list[ModuleRow]:
    """One row for every module down to `depth` (None: all), in the order in which they run."""
    sums: dict[str, list[int]] = {"": [0, 0, 0, 0, 0]}
    saved = saved_by_node(graph)
    for node, cost, keeps in zip(graph.nodes, graph.node_costs, saved, strict=True):
        values = (1, 0, cost.forward_flops, cost.backward_flops, keeps)
        for prefix in _prefixes(node.module):
            row = sums.setdefault(prefix, [0] * 5)
            row[:] = [old + new for old, new in zip(row, values, strict=True)]
    for parameter in graph.parameters:
        if parameter.unique and not parameter.is_buffer:
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


def scaled(value: float, unit: str = "") -> str:
    """A number with a metric prefix, such as `4.09 G`."""
    power = 0
    while abs(value) >= 1000 and power < len(_PREFIXES) - 1:
        value /= 1000
        power += 1
    digits = f"{value:.3g}" if power else f"{value:.0f}"
    return f"{digits} {_PREFIXES[power]}{unit}".rstrip()


def format_table(graph: OpGraph, depth: int | None = 2) -> str:
    """The table by module as text, with totals and what the numbers mean."""
    head = ("module", "calls", "parameters", "forward", "backward", "saved", "share")
    lines = [head]
    for row in module_rows(graph, depth):
        name = "  " * row.depth + (
            row.module.rpartition(".")[2] or graph.meta.get("model", "model")
        )
        lines.append(
            (
                name,
                str(row.calls),
                f"{row.params:,}",
                scaled(row.forward_flops, "FLOP"),
                scaled(row.backward_flops, "FLOP"),
                scaled(row.saved_bytes, "B"),
                f"{row.share:.1%}",
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    text.insert(1, "-" * len(text[0]))
    repeated = graph.recomputed_flops
    if repeated:
        text.append(f"checkpointing repeats {scaled(repeated, 'FLOP')} in the backward pass")
    text.append(
        f"batch {graph.batch_size}, {graph.mode}; a multiply-accumulate is 2 FLOP; causal "
        "attention counts as the full square; saved: bytes kept for the backward pass"
    )
    text += [f"no formula, counted as 0: {op} x{n}" for op, n in graph.unknown_ops.items()]
    return "\n".join(text)


def to_csv(graph: OpGraph) -> str:
    """One line for every operator call."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    columns = graph.costs()
    names = ["index", "name", "module", "operator", "kind", "inputs", "shape", "dtype"]
    writer.writerow([*names, *columns, "saved_bytes"])
    for i, (node, saved) in enumerate(zip(graph.nodes, saved_by_node(graph), strict=True)):
        shape = "x".join(map(str, node.output.shape))
        inputs = " ".join(str(index) for index in node.inputs if index >= 0)
        facts = [
            i,
            node.name,
            node.module,
            node.target,
            node.kind,
            inputs,
            shape,
            node.output.dtype,
        ]
        writer.writerow([*facts, *(values[i] for values in columns.values()), saved])
    return buffer.getvalue()


def modules_csv(graph: OpGraph, depth: int | None = None) -> str:
    """One line for every module."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    names = [field.name for field in fields(ModuleRow)]
    writer.writerow(names)
    for row in module_rows(graph, depth):
        writer.writerow([getattr(row, name) for name in names])
    return buffer.getvalue()


def to_graphml(graph: OpGraph) -> str:
    """GraphML, as networkx writes it."""
    import networkx as nx

    return "\n".join(nx.generate_graphml(to_networkx(graph))) + "\n"


def to_dot(graph: OpGraph) -> str:
    """Graphviz: operators as boxes, tensors as arrows."""
    lines = [f"digraph {_quoted(str(graph.meta.get('model', 'model')))} {{", "  node [shape=box];"]
    for node, cost in zip(graph.nodes, graph.node_costs, strict=True):
        size = "x".join(map(str, node.output.shape))
        parts = [node.module, node.op, size]
        if cost.forward_flops:
            parts.append(scaled(cost.forward_flops, "FLOP"))
        lines.append(f"  {node.index} [label={_quoted(chr(10).join(p for p in parts if p))}];")
    lines += [
        f"  {edge.source} -> {edge.target} [label={_quoted(scaled(edge.bytes, 'B'))}];"
        for edge in graph.edges
    ]
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _json(graph: OpGraph) -> str:
    return graph.to_json()


def _html(graph: OpGraph) -> str:
    from tracing.views.page import to_html

    return to_html(graph)


WRITERS: dict[str, Callable[[OpGraph], str]] = {
    ".json": _json,
    ".json.gz": _json,
    ".csv": to_csv,
    ".graphml": to_graphml,
    ".dot": to_dot,
    ".gv": to_dot,
    ".html": _html,
}


def write_graph(graph: OpGraph, path: str | Path) -> None:
    """Writes a graph in the format that the end of the file's name asks for.

    Args:
        graph: The graph.
        path: A name ending in .json, .json.gz, .csv, .graphml, .dot, .gv or .html.
    """
    path = Path(path)
    ending = next((e for e in sorted(WRITERS, reverse=True) if path.name.lower().endswith(e)), None)
    if ending is None:
        raise TraceError(f"cannot tell the format of '{path.name}': end it in {', '.join(WRITERS)}")
    write_atomic(path, WRITERS[ending](graph))
