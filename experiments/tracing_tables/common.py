"""What all tracing tables share: rows that are made one by one, and what they were made with."""

from __future__ import annotations

import functools
import platform
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from experiments.shared.ledger import Ledger, Row
from experiments.shared.results import RESULTS, git_commit, provenance, write_result
from tracing import TRACER_VERSION

FOLDER = RESULTS / "tracing"
PACKAGES = ("torch", "torchvision", "timm", "transformers", "torch-geometric")


@dataclass(frozen=True)
class Study:
    """One table.

    Attributes:
        name: Name of the files.
        keys: The models (or cases) of the table, one for each row.
        row: Makes the row of one key; what it raises becomes the row's `error`.
        summary: Lines that sum a finished table up.
        limit_s: A row that needs more time of the processor fails.
        packages: Packages whose versions matter beside those of every table.
    """

    name: str
    keys: Callable[[], list[str]]
    row: Callable[[str], Row]
    summary: Callable[[list[Row]], list[str]]
    limit_s: int = 300
    packages: tuple[str, ...] = ()


class TimeLimitError(BaseException):
    """A row took too long; no `Exception`, so that no fallback of a library swallows it."""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Stops what needs more time of the processor."""

    def stop(*_: Any) -> None:
        raise TimeLimitError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def attempt(study: Study, key: str) -> Row:
    """Makes one row; a failure becomes part of the table."""
    made: Row = {}
    try:
        with time_limit(study.limit_s):
            made, failure = study.row(key), ""
    except (Exception, TimeLimitError) as error:
        failure = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return {"model": key, **made, "commit": _commit(), "error": failure}


@functools.cache
def _commit() -> str:
    """The commit of the code when the first row was made."""
    return git_commit()


def make(study: Study, keys: Iterable[str]) -> Iterator[Row]:
    """Makes rows and prints them."""
    for key in keys:
        row = attempt(study, key)
        print("  ".join(str(value) for value in row.values() if value != ""), flush=True)
        yield row


def ledger(name: str) -> Ledger:
    """The rows of earlier runs."""
    return Ledger(FOLDER / f"{name}.csv")


def run(study: Study, *, forgotten: Callable[[Row], bool]) -> list[Row]:
    """Makes a whole table, goes on where an earlier run stopped, and writes its files.

    Args:
        study: The table.
        forgotten: Rows of earlier runs that are made again.
    """
    keys, table = study.keys(), ledger(study.name)
    table.keep(lambda row: row["model"] in set(keys) and not forgotten(row))
    known = {row["model"] for row in table.rows}
    for row in make(study, [key for key in keys if key not in known]):
        table.add(row)
        write_facts(study, table.rows, len(keys))
    table.rows.sort(key=lambda row: keys.index(row["model"]))
    table.save()
    write_facts(study, table.rows, len(keys))
    return table.rows


def write_facts(study: Study, table: list[Row], wanted: int) -> None:
    """Writes what a table was made with, and its summary, as JSON."""
    facts = provenance(
        f"python -m experiments.tracing_tables {study.name}",
        (*PACKAGES, *study.packages),
        rows=len(table),
        rows_wanted=wanted,
        summary=study.summary(table),
        commits=sorted({str(row.get("commit", "unknown")) for row in table}),
        tracer=TRACER_VERSION,
        machine=f"{platform.machine()}, one thread",
    )
    write_result(study.name, facts, FOLDER)


def counted(table: list[Row], column: str) -> list[str]:
    """How often each value of a column occurs; failed rows count as failed."""
    counts = Counter("failed" if row["error"] else str(row.get(column, "")) for row in table)
    return [f"{value}: {count} of {len(table)}" for value, count in counts.items()]


def errors(table: list[Row], limit_percent: float) -> list[str]:
    """How far the column `error_percent` is from zero."""
    sizes = [abs(row["error_percent"]) for row in table if not row["error"]]
    return [
        f"within {limit_percent}%: {sum(size <= limit_percent for size in sizes)} of {len(table)}",
        f"exact: {sum(size == 0 for size in sizes)}",
        f"largest error: {max(sizes, default=0.0):.2f}%",
    ]
