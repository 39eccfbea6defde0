"""`prenet trace`: a model as a graph of operators with its costs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from prenet_gnn.cli._options import Json, Model, Output, ShapeOptions, grouped
from prenet_gnn.workload import DEFAULT_FRAMEWORK, MODES, Workload

if TYPE_CHECKING:
    from tracing import OpGraph

SHOWN_OPERATORS = 10


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(grouped(trace))


def trace(
    model: Model,
    shape: ShapeOptions,
    mode: Annotated[str, typer.Option(help=" | ".join(MODES))] = "train",
    framework: Annotated[
        str, typer.Option(help="PyTorch version, which decides the attention kernels.")
    ] = DEFAULT_FRAMEWORK,
    output: Output = None,
    json: Json = False,
) -> None:
    """Lists a model's operators, FLOPs and parameters."""
    from prenet_gnn.cli._graphs import graph_of
    from prenet_gnn.cli._text import emit, json_text

    optimizer = "adamw" if mode == "train" else "none"
    workload = Workload(mode=mode, optimizer=optimizer, framework=framework)
    graph = graph_of(model, shape, workload)
    if output is not None:
        graph.to_json(output)
    if json:
        emit(json_text(_facts(model, graph)), None)
    else:
        _print(model, graph)


def _facts(model: str, graph: OpGraph) -> dict[str, object]:
    return {
        "model": model,
        "batch_size": graph.batch_size,
        "mode": graph.mode,
        "operators": len(graph.nodes),
        "total_flops": graph.total_flops,
        "total_backward_flops": graph.total_backward_flops,
        "total_params": graph.total_params,
        "total_param_bytes": graph.total_param_bytes,
        "unknown_ops": graph.unknown_ops,
    }


def _print(model: str, graph: OpGraph) -> None:
    from prenet_gnn.cli._text import bytes_text, count_text, print_table, warn

    print(f"{model}, batch {graph.batch_size}, {graph.mode}: {len(graph.nodes)} operators")
    print(f"  forward     {count_text(graph.total_flops)}FLOP (a multiply-add counts as two)")
    print(f"  backward    {count_text(graph.total_backward_flops)}FLOP")
    size = bytes_text(graph.total_param_bytes)
    print(f"  parameters  {graph.total_params:,} ({size})")
    groups = graph.by_operator()
    calls = Counter(node.target for node in graph.nodes)
    top = sorted(
        groups.items(),
        key=lambda item: (item[1].forward_flops, item[1].forward_bytes),
        reverse=True,
    )
    rows = [
        (name, f"{calls[name]}", count_text(cost.forward_flops), bytes_text(cost.forward_bytes))
        for name, cost in top[:SHOWN_OPERATORS]
    ]
    print_table(("operator", "calls", "forward FLOP", "forward bytes"), rows)
    if len(top) > SHOWN_OPERATORS:
        print(f"and {len(top) - SHOWN_OPERATORS} more kinds of operator")
    warn([f"counted as zero: {name} ({n} calls)" for name, n in graph.unknown_ops.items()])
