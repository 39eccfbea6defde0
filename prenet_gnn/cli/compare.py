"""`prenet compare`: one model on all devices, ranked by time or cost."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prenet_gnn.cli._options import (
    Devices,
    Json,
    Model,
    PredictorOptions,
    Prices,
    ReportFile,
    RunOptions,
    ShapeOptions,
    grouped,
)

if TYPE_CHECKING:
    from prenet_gnn.planning import Comparison, DeviceRow
    from prenet_gnn.predictor.interface import TimePredictor
    from prenet_gnn.workload.workload import Workload
    from tracing import OpGraph


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(grouped(compare))


def compare(
    model: Model,
    shape: ShapeOptions,
    run: RunOptions,
    source: PredictorOptions,
    devices: Devices = None,
    sort: Annotated[str, typer.Option(help="time | cost")] = "time",
    samples: Annotated[
        int | None, typer.Option(help="Samples of one epoch; adds its cost.")
    ] = None,
    price: Prices = None,
    top: Annotated[int | None, typer.Option(min=1, help="Show only the first rows.")] = None,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write all rows to FILE.")
    ] = None,
    report: ReportFile = None,
    json: Json = False,
) -> None:
    """Ranks all devices by time or cost for one model."""
    from prenet_gnn import planning
    from prenet_gnn.cli._graphs import graph_of
    from prenet_gnn.cli._report import check_report
    from prenet_gnn.cli._text import emit, json_text
    from prenet_gnn.planning.prices import parse_prices
    from prenet_gnn.predictor.jobs import check_size

    if samples is not None:
        check_size("samples", samples)
    check_report(report)
    workload = run.workload()
    graph = graph_of(model, shape, workload)
    predictor = source.load()
    result = planning.compare(
        graph,
        predictor,
        workload,
        devices=devices or None,
        prices=parse_prices(price or []),
        samples=samples,
        sort=sort,
    )
    if report is not None:
        _write_report(report, model, graph, result, predictor, workload)
    if csv_file is not None:
        emit(_csv(result), csv_file)
    if json:
        emit(json_text({"model": model, "batch_size": graph.batch_size, **result.to_dict()}), None)
    else:
        print(f"{model}, batch {graph.batch_size}, {workload.mode}, {workload.precision}")
        _print(result, top)


def _write_report(
    path: Path,
    model: str,
    graph: "OpGraph",
    result: "Comparison",
    predictor: "TimePredictor",
    workload: "Workload",
) -> None:
    """The breakdown is that of the device that is ranked first."""
    from prenet_gnn.cli import _report
    from prenet_gnn.errors import ConfigError

    if not result.devices:
        raise ConfigError("no device can run this, so there is nothing to report.")
    first = result.devices[0].hardware
    _report.write(
        path,
        f"{model} on {len(result.devices)} devices",
        graph,
        predictor.predict(graph, hardware=first, workload=workload),
        predictor,
        comparison=result,
        inputs={"command": "compare", "model": model, "broken down for": first},
    )


def _csv(result: "Comparison") -> str:
    rows = result.to_dict()["devices"]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["hardware"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def _print(result: "Comparison", top: int | None) -> None:
    from prenet_gnn.cli._text import bytes_text, print_table, rate_text, time_text

    def cells(row: "DeviceRow") -> tuple[str, ...]:
        epoch = row.cost_per_epoch_usd
        cost = row.usd_per_million_samples if epoch is None else epoch
        return (
            f"{'*' if row.pareto else ' '} {row.hardware}",
            time_text(row.seconds),
            f"{time_text(row.low_s)} - {time_text(row.high_s)}",
            rate_text(row.samples_per_s),
            bytes_text(row.peak_memory_bytes) if row.fits else "does not fit",
            "" if row.usd_per_hour is None else f"{row.usd_per_hour:.2f}",
            "" if cost is None else f"{cost:,.2f}",
            row.price_source,
        )

    per_epoch = any(row.cost_per_epoch_usd is not None for row in result.devices)
    unit = "USD/epoch" if per_epoch else "USD/M samples"
    columns = ("device", "iteration", "90%", "samples/s", "memory", "USD/h", unit, "price of")
    print_table(columns, [cells(row) for row in result.devices[:top]])
    print("* no device that fits is both faster and cheaper")
    if result.skipped:
        print(f"left out ({len(result.skipped)}): {next(iter(result.skipped.values()))}")
