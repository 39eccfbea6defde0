"""What all tracing tables share: models by name, timing, CSV and text output."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
Row = dict[str, Any]


def attempt(work: Callable[[], Row], **facts: Any) -> Row:
    """Runs one row; a failure becomes part of the table."""
    try:
        return {**facts, **work(), "error": ""}
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        return {**facts, "error": f"{type(error).__name__}: {text}"}


def write(name: str, rows: list[Row]) -> Path:
    """Writes rows as `results/tracing_NAME.csv`."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"tracing_{name}.csv"
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def show(rows: Iterable[Row]) -> Iterable[Row]:
    """Prints rows as they come."""
    for row in rows:
        print("  ".join(f"{value}" for value in row.values() if value != ""), flush=True)
        yield row
