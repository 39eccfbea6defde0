"""Finished runs of a study in a CSV file, so that a study that was stopped goes on where it was."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from prenet_gnn.common.files import write_whole

Row = dict[str, Any]
DIGITS = 6
# Columns that stand at the end and stay text, even where a commit looks like a number.
LAST = ("commit", "error")


class Ledger:
    """One row per finished run; columns are those that any row has.

    Attributes:
        path: The file, written as a whole after every run.
        rows: Finished runs; what looks like a number is one.
    """

    def __init__(self, path: Path) -> None:
        """Reads what is there; a line that was cut off is left out."""
        self.path = path
        self.rows: list[Row] = []
        if path.exists():
            with path.open(newline="", encoding="utf-8") as file:
                whole = (row for row in csv.DictReader(file) if None not in row.values())
                self.rows = [_typed(row) for row in whole]

    def has(self, **key: object) -> bool:
        """Whether a run is finished."""
        return any(all(str(row[k]) == str(v) for k, v in key.items()) for row in self.rows)

    def add(self, row: Mapping[str, Any]) -> None:
        """Adds a finished run."""
        self.rows.append(_typed({name: _text(value) for name, value in row.items()}))
        self.save()

    def keep(self, wanted: Callable[[Row], bool]) -> None:
        """Forgets all other runs."""
        self.rows = [row for row in self.rows if wanted(row)]

    def save(self) -> None:
        """Writes the file, whole or not at all."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        columns = [name for name in names if name not in LAST]
        text = io.StringIO()
        writer = csv.DictWriter(
            text, [*columns, *(name for name in LAST if name in names)], lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows({k: _text(v) for k, v in row.items()} for row in self.rows)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, text.getvalue())


def _text(value: object) -> str:
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else str(value)


def _typed(row: Mapping[str, str]) -> Row:
    return {name: text if name in LAST else _value(text) for name, text in row.items()}


def _value(text: str) -> Any:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text
