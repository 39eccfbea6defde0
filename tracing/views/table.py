"""A graph as a table by module, in plain text."""

from __future__ import annotations

from tracing.costs.totals import node_costs, recomputed_flops, unknown_ops
from tracing.graph.data import GraphData
from tracing.views.modules import module_rows
from tracing.views.units import metric


def format_table(graph: GraphData, depth: int | None = 2) -> str:
    """The table by module as text, with totals and what the numbers mean."""
    head = ("module", "calls", "parameters", "forward", "backward", "saved", "share")
    lines: list[tuple[str, ...]] = [head]
    for row in module_rows(graph, depth):
        name = "  " * row.depth + (row.module.rpartition(".")[2] or graph.name)
        lines.append((name, str(row.calls), *row.figures()))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    text.insert(1, "-" * len(text[0]))
    repeated = recomputed_flops(graph, node_costs(graph))
    if repeated:
        text.append(f"checkpointing repeats {metric(repeated, 'FLOP')} in the backward pass")
    text.append(
        f"batch {graph.batch_size}, {graph.mode}; a multiply-accumulate is 2 FLOP; causal "
        "attention counts as the full square; saved: bytes kept for the backward pass"
    )
    text += [f"no formula, counted as 0: {op} x{n}" for op, n in unknown_ops(graph).items()]
    return "\n".join(text)
