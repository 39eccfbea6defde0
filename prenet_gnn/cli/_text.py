"""How results reach a person: tables, JSON, files, warnings and a progress bar."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prenet_gnn.common.files import write_whole
from prenet_gnn.common.units import bytes_text, count_text, rate_text, time_text

__all__ = [
    "bytes_text",
    "count_text",
    "emit",
    "json_text",
    "print_table",
    "progress",
    "rate_text",
    "time_text",
    "warn",
]


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1
) -> None:
    """Prints rows under their column names; the first columns are text, the others numbers."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place < text_columns else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    # Piped output keeps whole lines, whatever the width of a terminal would be.
    width = None if sys.stdout.isatty() else 200
    Console(width=width, highlight=False, markup=False).print(table)


def json_text(values: Mapping[str, Any] | Sequence[Any]) -> str:
    """Gives one JSON object, as strict JSON without NaN."""
    return json.dumps(values, indent=2, allow_nan=False)


def emit(text: str, output: Path | None) -> None:
    """Writes a text to a file, or prints it where no file is named."""
    if output is None:
        print(text)
    else:
        write_whole(output, text + "\n")


def warn(messages: Sequence[str]) -> None:
    """Prints warnings on standard error, so that the result stays clean."""
    for message in messages:
        print(f"warning: {message}", file=sys.stderr)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Shows a bar with the remaining time on a terminal, and nothing elsewhere."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)

        def advance(count: int) -> None:
            bar.advance(task, count)

        yield advance
