"""`prenet measure`: really runs iterations on this machine, of one model or a whole sweep."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from prenet_gnn.cli._options import (
    MODEL_HELP,
    MachineOptions,
    RecordOptions,
    RunOptions,
    ShapeOptions,
)

if TYPE_CHECKING:
    from prenet_gnn.measuring import MeasuredRecord


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Many points in place of one model."""

    sweep: Annotated[
        str | None, typer.Option(metavar="NAME_OR_TOML", help="Measure many points instead.")
    ] = None
    minutes: Annotated[float | None, typer.Option(help="Time limit of a sweep.")] = None


def measure(
    shape: ShapeOptions,
    run: RunOptions,
    many: SweepOptions,
    result: RecordOptions,
    machine: MachineOptions,
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help=MODEL_HELP)] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Add a breakdown by kernel.")] = False,
) -> None:
    """Measures a model on this machine.

    Adds one JSON line with times, split and memory per model to the records file.
    """
    if (model is None) == (many.sweep is None):
        raise typer.BadParameter("give either a model or --sweep, and not both")
    if model is None:
        _sweep(many, result, machine)
        return
    if many.minutes is not None:
        raise typer.BadParameter("--minutes is for --sweep; --iterations limits one model")
    from prenet_gnn.measuring import measure_model

    result.check()
    point = run.to_measure(model, shape)
    record = measure_model(point, machine.device, machine.effort(profile=profile))
    result.add(record)
    print(record.to_json() if result.json else _text(record))


def _sweep(many: SweepOptions, result: RecordOptions, machine: MachineOptions) -> None:
    from prenet_gnn.cli._text import time_text, warn
    from prenet_gnn.measuring import supervised_sweep

    assert many.sweep is not None
    if result.output is None:
        raise typer.BadParameter("--sweep needs -o: the records file, which also lets it resume")
    minutes = many.minutes
    # `not (minutes > 0)` also refuses NaN
    if minutes is not None and not (minutes > 0):
        raise typer.BadParameter(f"--minutes must be above zero, not {minutes}")
    done = supervised_sweep(
        many.sweep, result.output, minutes, machine.device, threads=machine.threads
    )
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
