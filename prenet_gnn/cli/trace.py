"""`prenet trace`: a model as a graph of operators with its costs."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prenet_gnn.cli._options import Json, Model, ShapeOptions
from prenet_gnn.errors import ConfigError
from prenet_gnn.workload.workload import DEFAULT_FRAMEWORK, MODES, Workload

if TYPE_CHECKING:
    from tracing import OpGraph

SHOWN_OPERATORS = 10


@dataclass(frozen=True, slots=True)
class ShownOptions:
    """What is printed."""

    depth: Annotated[
        int, typer.Option(min=0, help="Levels of modules in the table; 0 shows the totals alone.")
    ] = 2
    operators: Annotated[
        bool, typer.Option("--operators", help="A table by operator in place of modules.")
    ] = False
    json: Json = False


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Where the graph is written."""

    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the graph; .json, .json.gz, .csv, .graphml, .dot or .html by the ending.",
        ),
    ] = None
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the graph as one interactive page."),
    ] = None


def trace(
    model: Model,
    shape: ShapeOptions,
    shown: ShownOptions,
    files: FileOptions,
    mode: Annotated[str, typer.Option(help=" | ".join(MODES))] = "train",
    framework: Annotated[
        str, typer.Option(help="PyTorch version, which decides the attention kernels.")
    ] = DEFAULT_FRAMEWORK,
) -> None:
    """Lists a model's modules or operators with FLOPs, parameters and memory."""
    from prenet_gnn.cli._graphs import graph_of
    from prenet_gnn.cli._text import emit, json_text

    optimizer = "adamw" if mode == "train" else "none"
    workload = Workload(mode=mode, optimizer=optimizer, framework=framework)
    graph = graph_of(model, shape, workload)
    _write(graph, files)
    if shown.json:
        emit(json_text(_facts(model, graph)), None)
    elif shown.operators:
        _print_operators(model, graph)
    else:
        _print_modules(model, graph, shown.depth)


def _write(graph: "OpGraph", files: FileOptions) -> None:
    if files.output is None and files.html is None:
        return
    from tracing.views.write import write_graph

    if files.html is not None and files.html.suffix.lower() != ".html":
        raise ConfigError(
            f"--html writes a page, so end '{files.html.name}' in .html; -o writes others."
        )
    for path in (files.output, files.html):
        if path is not None:
            write_graph(graph, path)


def _facts(model: str, graph: "OpGraph") -> dict[str, object]:
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


def _print_modules(model: str, graph: "OpGraph", depth: int) -> None:
    from prenet_gnn.cli._text import warn
    from tracing.views.table import format_table

    print(f"{model}, batch {graph.batch_size}, {graph.mode}: {len(graph.nodes)} operators")
    print(format_table(graph, depth))
    bounds = [f"counted as an upper bound: {what}" for what in graph.meta.get("upper_bounds", [])]
    warn([*bounds, *graph.meta.get("approximated", [])])


def _print_operators(model: str, graph: "OpGraph") -> None:
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
