"""What all tracing tables share: studies that can be resumed, versions, CSV and JSON files."""

from __future__ import annotations

import csv
import functools
import json
import platform
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from experiments.provenance import git_commit
from tracing import TRACER_VERSION

RESULTS = Path(__file__).resolve().parents[1] / "results" / "tracing"
PACKAGES = ("torch", "torchvision", "timm", "transformers", "torch-geometric")
Row = dict[str, Any]
# Columns that stay text, even where a commit looks like a number.
TEXTS = ("model", "commit", "error")


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


def make(study: Study, keys: Iterable[str], done: Iterable[Row] = ()) -> Iterator[Row]:
    """Makes the rows that are not done yet and prints them."""
    known = {row["model"] for row in done}
    for key in keys:
        if key not in known:
            row = attempt(study, key)
            print("  ".join(str(value) for value in row.values() if value != ""), flush=True)
            yield row


def run(study: Study, only: list[str], *, again: bool, retry: bool) -> list[Row]:
    """Makes a whole table, goes on where an earlier run stopped, and writes its files.

    Args:
        study: The table.
        only: Just these rows; nothing is written then.
        again: Forget the rows of earlier runs.
        retry: Forget failed rows of earlier runs.
    """
    if only:
        return list(make(study, only))
    keys = study.keys()
    table = [] if again else [row for row in load(study.name) if row["model"] in set(keys)]
    if retry:
        table = [row for row in table if not row["error"]]
    _commit()
    for row in make(study, keys, table):
        table.append(row)
        write_rows(study.name, table)
        write_facts(study, table, len(keys))
    table.sort(key=lambda row: keys.index(row["model"]))
    write_rows(study.name, table)
    write_facts(study, table, len(keys))
    return table


def write_rows(name: str, table: list[Row]) -> None:
    """Writes the table as CSV, whole or not at all."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    last = ("commit", "error")
    columns = list(dict.fromkeys(key for row in table for key in row if key not in last))
    draft = RESULTS / f".{name}.csv.draft"
    with draft.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*columns, *last], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    draft.replace(RESULTS / f"{name}.csv")


def write_facts(study: Study, table: list[Row], wanted: int) -> None:
    """Writes what a table was made with, and its summary, as JSON."""
    facts = {
        "command": f"python -m experiments.tracing_tables {study.name}",
        "rows": len(table),
        "rows_wanted": wanted,
        "summary": study.summary(table),
        "commits": sorted({str(row.get("commit", "unknown")) for row in table}),
        "tracer": TRACER_VERSION,
        "versions": _versions((*PACKAGES, *study.packages)),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, one thread",
    }
    text = json.dumps(facts, indent=2) + "\n"
    (RESULTS / f"{study.name}.json").write_text(text, encoding="utf-8")


def _versions(packages: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def load(name: str) -> list[Row]:
    """The rows of an earlier run, numbers as numbers."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            {key: text if key in TEXTS else _value(text) for key, text in row.items()}
            for row in csv.DictReader(file)
        ]


def facts(name: str) -> dict[str, Any]:
    """What the JSON file of a table says; empty where there is none."""
    path = RESULTS / f"{name}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def _value(text: str) -> Any:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def counted(table: list[Row], column: str) -> list[str]:
    """How often each value of a column occurs; failed rows count as failed."""
    counts: dict[str, int] = {}
    for row in table:
        value = "failed" if row["error"] else str(row.get(column, ""))
        counts[value] = counts.get(value, 0) + 1
    return [f"{value}: {count} of {len(table)}" for value, count in counts.items()]


def forget(name: str, prefixes: list[str]) -> None:
    """Takes rows whose model starts with one of the prefixes out of an earlier table."""
    if prefixes:
        kept = [row for row in load(name) if not row["model"].startswith(tuple(prefixes))]
        write_rows(name, kept)


def errors(table: list[Row], limit_percent: float) -> list[str]:
    """How far the column `error_percent` is from zero."""
    sizes = [abs(row["error_percent"]) for row in table if not row["error"]]
    return [
        f"within {limit_percent}%: {sum(size <= limit_percent for size in sizes)} of {len(table)}",
        f"exact: {sum(size == 0 for size in sizes)}",
        f"largest error: {max(sizes, default=0.0):.2f}%",
    ]
