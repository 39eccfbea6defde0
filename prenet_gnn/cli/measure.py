"""`prenet measure`: really runs iterations on this machine, of one model or a whole sweep."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prenet_gnn.cli._options import (
    MODEL_HELP,
    Device,
    Iterations,
    Json,
    Records,
    RunOptions,
    ShapeOptions,
    Threads,
    grouped,
)

if TYPE_CHECKING:
    from prenet_gnn.measuring import MeasuredRecord


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(grouped(measure))


def measure(
    shape: ShapeOptions,
    run: RunOptions,
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help=MODEL_HELP)] = None,
    sweep: Annotated[
        str | None, typer.Option(metavar="NAME_OR_TOML", help="Measure many points instead.")
    ] = None,
    output: Records = None,
    device: Device = None,
    iterations: Iterations = None,
    threads: Threads = None,
    profile: Annotated[bool, typer.Option("--profile", help="Add a breakdown by kernel.")] = False,
    minutes: Annotated[float | None, typer.Option(help="Time limit of a sweep.")] = None,
    json: Json = False,
) -> None:
    """Measures a model on this machine.

    Adds one JSON line with times, split and memory per model to the records file.
    """
    if (model is None) == (sweep is None):
        raise typer.BadParameter("give either a model or --sweep, and not both")
    if sweep is not None:
        if output is None:
            raise typer.BadParameter(
                "--sweep needs -o: the records file, which also lets it resume"
            )
        # `not (minutes > 0)` also refuses NaN
        if minutes is not None and not (minutes > 0):
            raise typer.BadParameter(f"--minutes must be above zero, not {minutes}")
        _sweep(sweep, output, minutes, device, threads)
        return
    if minutes is not None:
        raise typer.BadParameter("--minutes is for --sweep; --iterations limits one model")
    from prenet_gnn.measuring import Effort, append_record, check_target, measure_model

    assert model is not None
    if output is not None:
        check_target(output)
    record = measure_model(
        model,
        shape.batch,
        shape.image_size,
        shape.seq_len,
        run.to_measure(shape),
        device,
        iterations,
        threads=threads,
        effort=Effort(profile=profile),
    )
    if output is not None:
        append_record(output, record)
    print(record.to_json() if json else _text(record))


def _sweep(
    name: str, output: Path, minutes: float | None, device: str | None, threads: int | None
) -> None:
    from prenet_gnn.cli._text import time_text, warn
    from prenet_gnn.measuring import supervised_sweep

    done = supervised_sweep(name, output, minutes, device, threads=threads)
    warn(done.notes)
    print(
        f"{done.name}: {done.measured} measured in {time_text(done.seconds)}, {done.known} known "
        f"before, {done.oom} did not fit, {done.failed} failed, {done.skipped} skipped, "
        f"{done.remaining} of {done.total} left"
    )


def _text(record: "MeasuredRecord") -> str:
    from prenet_gnn.cli._text import bytes_text, time_text

    head = f"{record.model} (batch {record.batch_size}, {record.mode}, {record.precision})"
    if record.seconds is None:
        return f"{head} on {record.hardware}: {record.status} {record.error}".rstrip()
    spread = f"{time_text(record.p10_s or 0.0)} to {time_text(record.p90_s or 0.0)}"
    lines = [
        f"{head} on {record.hardware}",
        f"  iteration  {time_text(record.seconds):>9}   median of {len(record.samples_s)}, "
        f"80% within {spread}",
    ]
    for name in ("forward", "backward", "optimizer"):
        part = getattr(record, f"{name}_s")
        if part is not None:
            lines.append(f"  {name:<9}  {time_text(part):>9}")
    if record.peak_memory_bytes is not None:
        lines.append(f"  memory     {bytes_text(record.peak_memory_bytes):>9}   peak of tensors")
    lines += [f"    {time_text(s):>9}  {calls:>5} x  {n}" for n, s, calls in record.operators[:10]]
    if record.drift:
        lines.append("  the times drift: the machine was not in a steady state")
    return "\n".join(lines)
