"""`prenet check`: predicts a model on this machine, then measures it, side by side."""

from typing import TYPE_CHECKING

from prenet_gnn.cli._options import (
    MachineOptions,
    Model,
    PredictorOptions,
    RecordOptions,
    RunOptions,
    ShapeOptions,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from prenet_gnn.measuring.checking import Check, Part


def check(
    model: Model,
    shape: ShapeOptions,
    run: RunOptions,
    source: PredictorOptions,
    machine: MachineOptions,
    result: RecordOptions,
) -> None:
    """Predicts a model on this machine, then measures it, and prints both."""
    from prenet_gnn.cli._text import json_text, warn
    from prenet_gnn.measuring.checking import check_model

    result.check()
    point = run.to_measure(model, shape)
    found = check_model(point, source.load(), machine.device, machine.effort(profile=True))
    result.add(found.record)
    if result.json:
        print(json_text(found.to_dict()))
        return
    _print(found)
    warn(found.prediction.warnings)


def _print(check: "Check") -> None:
    from prenet_gnn.cli._text import bytes_text, print_table, time_text

    record, prediction = check.record, check.prediction
    settings = [f"batch {record.batch_size}", record.mode, record.precision]
    settings += [record.optimizer] if record.mode == "train" else []
    threads = ""
    if record.device_type == "cpu":
        threads = f", {record.threads} thread{'s' * (record.threads > 1)}"
    print(f"{record.model} ({', '.join(settings)}) on {prediction.hardware}{threads}")
    rows = [_row(part, time_text, indent) for part, indent in _times(check)]
    rows.append(_row(check.memory(), bytes_text, ""))
    print_table(("", "predicted", "measured", "error"), rows)
    interval = f"{time_text(prediction.low_s)} to {time_text(prediction.high_s)}"
    if record.seconds is None:
        print(f"not measured: {record.status} {record.error}".rstrip())
        return
    where = "inside" if check.inside else "outside"
    print(f"The measured time is {where} the predicted 90% interval, {interval}.")
    if record.drift:
        print("The measured times drift: the machine was not in a steady state.")


def _times(check: "Check") -> list[tuple["Part", str]]:
    inner = [(part, "  ") for part in (*check.phases(), *check.families())]
    return [(check.total, ""), *inner]


def _row(part: "Part", text: "Callable[[float], str]", indent: str) -> tuple[str, ...]:
    measured = "" if part.measured is None else text(part.measured)
    error = "" if part.error is None else f"{part.error:+.0%}"
    return (indent + part.name, text(part.predicted), measured, error)
