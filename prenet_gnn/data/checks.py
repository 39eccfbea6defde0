"""Looks through every table of the collection for values that cannot be right."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from prenet_gnn.data.published import PUBLISHED_FILE, published_problems
from prenet_gnn.data.reading import RowProblem, Schema, lines, read_table
from prenet_gnn.data.schema import MEASUREMENTS, MEMORY, OPERATORS, PUBLISHED
from prenet_gnn.data.tables import (
    MEASUREMENT_FILES,
    MEMORY_FILE,
    OPERATOR_FILES,
    device_name,
    phase_problems,
)
from prenet_gnn.errors import DataError
from prenet_gnn.workload.workload import PRECISIONS

# Numbers of bits below 16 appear in fine-tuning tables; they are read, never trained on.
KNOWN_PRECISIONS = (*PRECISIONS, "fp8", "amp_fp8", "bf16+nf4", "bf16+nf4-dq", "fp16 (fp32 math)")
KNOWN_PASSES = (
    "forward",
    "backward",
    "backward_input",
    "backward_weight",
    "accumulate_grad",
    "forward+backward+optimizer",
)
# The sources' own throughput and time differ by at most 6% (zero_grad outside the timer).
THROUGHPUT_TOLERANCE = 0.15
# Rows of one table whose samples are tokens, so throughput and batch size do not compare.
TOKEN_NOTES = ("TOKENS", "global")


def check_tables(data_dir: str | Path) -> list[RowProblem]:
    """Checks all tables of a data folder; an empty list means that nothing was found.

    Reports NaN, infinite, negative and unbelievable numbers, unknown devices, precisions, passes
    and phases, throughputs that do not fit the time (swapped units), shapes that are not JSON,
    repeated rows, and files that cannot be read.
    """
    folder = Path(data_dir)
    problems: list[RowProblem] = []
    for name in MEASUREMENT_FILES:
        problems += _check_file(folder / name, MEASUREMENTS)
    for name in OPERATOR_FILES:
        problems += _check_file(folder / name, OPERATORS)
    problems += _check_file(folder / MEMORY_FILE, MEMORY)
    # Older collections are without it, and no network needs it.
    if (folder / PUBLISHED_FILE).exists():
        problems += _check_file(folder / PUBLISHED_FILE, PUBLISHED)
    return problems


def _check_file(path: Path, schema: Schema) -> list[RowProblem]:
    try:
        frame, problems = read_table(path, schema)
    except DataError as error:
        return [RowProblem(path.name, 0, "", str(error))]
    problems += _unknown(frame, path.name, "gpu", _known_devices(frame), "is not in the catalogue")
    problems += _unknown(
        frame, path.name, "precision", KNOWN_PRECISIONS, "is not a known precision"
    )
    if schema is OPERATORS:
        problems += _unknown(frame, path.name, "pass", KNOWN_PASSES, "is not a known pass")
        problems += _shape_problems(frame, path.name)
    elif schema is MEASUREMENTS:
        problems += phase_problems(frame, path.name)
        problems += _throughput_problems(frame, path.name)
        problems += _sum_problems(frame, path.name)
    elif schema is PUBLISHED:
        problems += published_problems(frame, path.name)
    problems += _duplicates(frame, path.name)
    return sorted(problems, key=lambda p: (p.row, p.column))


def _known_devices(frame: pd.DataFrame) -> tuple[str, ...]:
    return tuple(name for name in frame["gpu"].unique() if name and device_name(name))


def _unknown(
    frame: pd.DataFrame, file: str, column: str, known: tuple[str, ...], problem: str
) -> list[RowProblem]:
    mask = ~frame[column].isin(known) & (frame[column] != "")
    return [
        RowProblem(file, line, column, f"'{frame[column].iloc[line - 2]}' {problem}")
        for line in lines(mask)
    ]


def _throughput_problems(frame: pd.DataFrame, file: str) -> list[RowProblem]:
    """Samples per second times seconds per step must give the batch size."""
    samples = frame["samples_per_s"] * frame["step_time_ms"] / 1e3
    off = (samples / frame["batch_size"] - 1).abs() > THROUGHPUT_TOLERANCE
    excused = frame["suspect"].astype("boolean").fillna(False).astype(bool)
    for note in TOKEN_NOTES:
        excused |= frame["notes"].str.contains(note, regex=False)
    return [
        RowProblem(
            file,
            line,
            "samples_per_s+step_time_ms",
            f"give {samples.iloc[line - 2]:.4g} samples per step, the batch is "
            f"{frame['batch_size'].iloc[line - 2]:g}; check the units",
        )
        for line in lines(off & ~excused)
    ]


def _sum_problems(frame: pd.DataFrame, file: str) -> list[RowProblem]:
    """Where a time is the sum of forward and backward, it must be that sum."""
    parts = frame["fwd_ms"] + frame["bwd_ms"]
    off = (frame["timed"] == "forward+backward") & ~(
        (parts / frame["step_time_ms"] - 1).abs() < 1e-3
    )
    problem = "forward and backward do not add up to the step"
    return [RowProblem(file, line, "fwd_ms+bwd_ms", problem) for line in lines(off)]


def _shape_problems(frame: pd.DataFrame, file: str) -> list[RowProblem]:
    problems = []
    for line, text in enumerate(frame["shape"], start=2):
        try:
            if isinstance(json.loads(text), dict):
                continue
            problem = "is not a JSON object"
        except json.JSONDecodeError as error:
            problem = f"is not JSON: {error.msg}"
        problems.append(RowProblem(file, line, "shape", problem))
    return problems


def _duplicates(frame: pd.DataFrame, file: str) -> list[RowProblem]:
    """Rows that repeat another row in everything, the time included."""
    repeated = frame.duplicated(keep="first")
    return [
        RowProblem(file, n, "", "repeats an earlier row in every column") for n in lines(repeated)
    ]
