"""`prenet predict`: time and memory of one iteration, for one model or a table of jobs."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prenet_gnn.cli._options import (
    MODEL_HELP,
    DevicesPerNode,
    Json,
    Output,
    PredictorOptions,
    ReportFile,
    RunOptions,
    ShapeOptions,
)
from prenet_gnn.workload.workload import Workload

if TYPE_CHECKING:
    from prenet_gnn.catalogue.devices import Hardware
    from prenet_gnn.planning.parallel import Outlook
    from prenet_gnn.predictor.interface import TimePredictor
    from prenet_gnn.predictor.prediction import Prediction
    from prenet_gnn.reporting import Report
    from tracing import OpGraph

SHOWN_MODULES = 5


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Many jobs in place of one model."""

    table: Annotated[
        Path | None,
        typer.Option("--table", metavar="CSV", help="Predict every row of a table instead."),
    ] = None
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that trace the models of a table.")
    ] = None


@dataclass(frozen=True, slots=True)
class ShownOptions:
    """What is wanted beside a prediction, and where it goes."""

    devices_per_node: DevicesPerNode = 1
    report: ReportFile = None
    output: Output = None
    json: Json = False


def predict(
    shape: ShapeOptions,
    run: RunOptions,
    source: PredictorOptions,
    jobs: TableOptions,
    shown: ShownOptions,
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help=MODEL_HELP)] = None,
    hardware: Annotated[
        str | None, typer.Option("--hardware", help="Device name (see `prenet hardware`) or file.")
    ] = None,
) -> None:
    """Predicts the time and memory of one iteration."""
    if (model is None) == (jobs.table is None):
        raise typer.BadParameter("give either a model or --table, and not both")
    if model is None:
        if shown.report is not None or shown.devices_per_node != 1:
            raise typer.BadParameter("--report and --devices-per-node are for one model, no table")
        if hardware is not None or shape != ShapeOptions() or run != RunOptions():
            raise typer.BadParameter("sizes, settings and devices are columns of the table")
        _predict_table(jobs, source, shown)
        return
    if hardware is None:
        raise typer.BadParameter("--hardware is needed: name a device, see `prenet hardware`")
    _predict_one(model, hardware, shape, run.workload(), source, shown)


def _predict_one(
    model: str,
    hardware: str,
    shape: ShapeOptions,
    workload: Workload,
    source: PredictorOptions,
    shown: ShownOptions,
) -> None:
    from prenet_gnn.catalogue.devices import get_hardware
    from prenet_gnn.cli._graphs import graph_of
    from prenet_gnn.cli._report import check_report
    from prenet_gnn.cli._text import emit, json_text, warn
    from prenet_gnn.planning.parallel import check_devices, data_parallel

    device = get_hardware(hardware)
    check_devices(shown.devices_per_node)
    check_report(shown.report)
    graph = graph_of(model, shape, workload)
    predictor = source.load()
    prediction = predictor.predict(graph, hardware=device, workload=workload)
    outlook = None
    if shown.devices_per_node > 1:
        outlook = data_parallel(graph, prediction, device, shown.devices_per_node)
    if shown.report is not None:
        from prenet_gnn.reporting import write_report

        write_report(shown.report, _report(model, graph, prediction, predictor, device))
    if shown.json:
        found = {"model": model, **prediction.to_dict()}
        if outlook is not None:
            found["outlook"] = outlook.to_dict()
        emit(json_text(found), shown.output)
    else:
        text = _text(model, graph.batch_size, workload, device.memory_bytes, prediction)
        text += "" if outlook is None else "\n" + _outlook_text(outlook)
        emit(text, shown.output)
        warn(prediction.warnings)


def _report(
    model: str,
    graph: "OpGraph",
    prediction: "Prediction",
    predictor: "TimePredictor",
    device: "Hardware",
) -> "Report":
    from prenet_gnn.cli._report import facts_of
    from prenet_gnn.planning import compare
    from prenet_gnn.reporting import Report

    return Report(
        title=f"{model} on {device.name}",
        graph=graph,
        hardware=device,
        prediction=prediction,
        comparison=compare(graph, predictor, prediction.workload),
        inputs={"command": "predict", "model": model, "hardware": device.name},
        weights=facts_of(predictor),
    )


def _outlook_text(outlook: "Outlook") -> str:
    from prenet_gnn.cli._text import bytes_text, rate_text, time_text

    low, high = time_text(outlook.low_s), time_text(outlook.high_s)
    return (
        f"  outlook    {time_text(outlook.step_s):>9}   {outlook.devices} devices of one node, "
        f"data parallel (coarse): {low} to {high}, {rate_text(outlook.samples_per_s)} samples/s, "
        f"{outlook.efficiency:.0%} efficient;\n"
        f"{'':24}sums {bytes_text(outlook.gradient_bytes)} over {outlook.link}, "
        f"{time_text(outlook.exposed_s)} not hidden by backward"
    )


def _text(
    model: str, batch_size: int, workload: Workload, memory_bytes: float, prediction: "Prediction"
) -> str:
    from prenet_gnn.cli._text import bytes_text, rate_text, time_text

    seconds = prediction.seconds
    settings = [f"batch {batch_size}", workload.mode, workload.precision]
    settings += [workload.optimizer] if workload.mode == "train" else []
    settings += ["channels_last"] if workload.channels_last else []
    settings += ["compiled"] if workload.compiled else []
    low, high = time_text(prediction.low_s), time_text(prediction.high_s)
    fits = "fits" if prediction.fits else "does not fit"
    lines = [
        f"{model} ({', '.join(settings)}) on {prediction.hardware}",
        f"  iteration  {time_text(seconds):>9}   90% interval {low} to {high}, "
        f"{rate_text(batch_size / seconds)} samples/s",
    ]
    if workload.mode == "train":
        for name in ("forward", "backward", "optimizer"):
            part = getattr(prediction, f"{name}_s")
            lines.append(f"  {name:<9}  {time_text(part):>9}   {part / seconds:4.0%}")
    lines.append(
        f"  memory     {bytes_text(prediction.peak_memory_bytes):>9}   peak, of "
        f"{bytes_text(memory_bytes)}: {fits}"
    )
    modules = sorted(prediction.by_module(depth=2).items(), key=lambda item: -item[1])
    lines.append("  costliest modules")
    for name, part in modules[:SHOWN_MODULES]:
        lines.append(f"    {name or '(root)':<28} {time_text(part):>9}   {part / seconds:4.0%}")
    return "\n".join(lines)


def _predict_table(jobs: TableOptions, source: PredictorOptions, shown: ShownOptions) -> None:
    from prenet_gnn.cli._text import emit, json_text, progress
    from prenet_gnn.predictor.bulk import answer_rows, to_csv
    from prenet_gnn.predictor.jobs import read_rows

    assert jobs.table is not None
    columns, rows = read_rows(jobs.table)
    predictor = source.load()
    with progress("rows", len(rows)) as advance:
        answers = answer_rows(rows, predictor, workers=jobs.workers, progress=advance)
    if shown.json:
        merged = [{**row, **answer.to_dict()} for row, answer in zip(rows, answers, strict=True)]
        emit(json_text({"rows": merged}), shown.output)
    else:
        emit(to_csv(columns, rows, answers).rstrip("\n"), shown.output)
    failed = sum(bool(answer.error) for answer in answers)
    if failed:
        print(f"{failed} of {len(rows)} rows failed: see the column 'error'", file=sys.stderr)
