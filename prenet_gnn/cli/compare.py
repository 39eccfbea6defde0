"""`prenet compare`: one model on all devices, ranked by time or cost."""

import csv
import io
from dataclasses import dataclass
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
    parse_prices,
)

if TYPE_CHECKING:
    from prenet_gnn.planning import Comparison, DeviceRow
    from prenet_gnn.predictor.interface import TimePredictor
    from prenet_gnn.reporting import Report
    from prenet_gnn.workload.workload import Workload
    from tracing import OpGraph


@dataclass(frozen=True, slots=True)
class RankOptions:
    """Which devices are ranked, and by what."""

    devices: Devices = None
    sort: Annotated[str, typer.Option(help="time | cost")] = "time"
    samples: Annotated[int | None, typer.Option(help="Samples of one epoch; adds its cost.")] = None
    price: Prices = None


@dataclass(frozen=True, slots=True)
class ShownOptions:
    """What is shown of the ranking, and where it goes."""

    top: Annotated[int | None, typer.Option(min=1, help="Show only the first rows.")] = None
    csv_file: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write all rows to FILE.")
    ] = None
    report: ReportFile = None
    json: Json = False


def compare(
    model: Model,
    shape: ShapeOptions,
    run: RunOptions,
    source: PredictorOptions,
    rank: RankOptions,
    shown: ShownOptions,
) -> None:
    """Ranks all devices by time or cost for one model."""
    from prenet_gnn import planning
    from prenet_gnn.cli._graphs import graph_of
    from prenet_gnn.cli._report import check_report
    from prenet_gnn.cli._text import emit, json_text
    from prenet_gnn.predictor.jobs import check_size

    if rank.samples is not None:
        check_size("samples", rank.samples)
    check_report(shown.report)
    workload = run.workload()
    graph = graph_of(model, shape, workload)
    predictor = source.load()
    result = planning.compare(
        graph,
        predictor,
        workload,
        devices=rank.devices or None,
        prices=parse_prices(rank.price),
        samples=rank.samples,
        sort=rank.sort,
    )
    if shown.report is not None:
        from prenet_gnn.reporting import write_report

        write_report(shown.report, _report(model, graph, result, predictor, workload))
    if shown.csv_file is not None:
        emit(_csv(result), shown.csv_file)
    if shown.json:
        emit(json_text({"model": model, "batch_size": graph.batch_size, **result.to_dict()}), None)
    else:
        print(f"{model}, batch {graph.batch_size}, {workload.mode}, {workload.precision}")
        _print(result, shown.top)


def _report(
    model: str,
    graph: "OpGraph",
    result: "Comparison",
    predictor: "TimePredictor",
    workload: "Workload",
) -> "Report":
    """The breakdown is that of the device that is ranked first."""
    from prenet_gnn.catalogue.devices import get_hardware
    from prenet_gnn.cli._report import facts_of
    from prenet_gnn.errors import ConfigError
    from prenet_gnn.reporting import Report

    if not result.devices:
        raise ConfigError("no device can run this, so there is nothing to report.")
    first = get_hardware(result.devices[0].hardware)
    return Report(
        title=f"{model} on {len(result.devices)} devices",
        graph=graph,
        hardware=first,
        prediction=predictor.predict(graph, first, workload),
        comparison=result,
        inputs={"command": "compare", "model": model, "broken down for": first.name},
        weights=facts_of(predictor),
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
