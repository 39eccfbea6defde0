"""Writes the summaries in `docs/tracing.md` and README's table, from their result files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from experiments import study_tables
from experiments.readme import fill_table
from experiments.tracing_tables import STUDIES
from experiments.tracing_tables.common import facts, load
from experiments.tracing_tables.coverage import groups

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tracing.md"
LIBRARIES = {
    "timm": "all names of the measured data that the installed timm knows",
    "torchvision": "`list_models()` without the quantised",
    "transformers": "one model of each architecture, from a small configuration",
}


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """Lines of a Markdown table."""
    return study_tables.table(list(head), [[str(cell) for cell in row] for row in rows]).split("\n")


def section(name: str) -> list[str]:
    """The lines between the two marks of a table: its summary, and what made it."""
    about = facts(name)
    if not about:
        return [f"Not measured yet: `python -m experiments.tracing_tables {name}`."]
    commits = ", ".join(about["commits"])
    missing = about["rows_wanted"] - about["rows"]
    return [
        *([f"Not finished: {missing} rows are still to be measured.", ""] if missing else []),
        *(f"* {line}" for line in about["summary"]),
        "",
        f"`{about['command']}`, commit {commits}, torch {about['versions']['torch']}.",
    ]


def short() -> list[str]:
    """README's table: how many models of each library are traced, all other groups as one."""
    rows, about = load("coverage"), facts("coverage")
    if not rows:
        return ["Not measured yet: `python -m experiments.tracing_tables coverage`."]
    found = groups(rows)
    kinds = [row for name, some in found.items() if name not in LIBRARIES for row in some]
    lines = [
        (title, f"{sum(not row['error'] for row in some)} of {len(some)}", share)
        for title, some, share in (
            *((name, found[name], LIBRARIES[name]) for name in LIBRARIES if name in found),
            ("hand-written", kinds, "inputs, regions, layers, graph networks, diffusion, LoRA"),
        )
    ]
    missing = about["rows_wanted"] - about["rows"]
    return [
        *table(("models", "traced", "which"), lines),
        "",
        *([f"{missing} rows are still to be measured."] if missing else []),
        f"`{about['command']}`, torch {about['versions']['torch']}.",
    ]


def write() -> Path:
    """Writes every summary into the page, and the table into README."""
    for name in STUDIES:
        fill_table(name, "\n".join(section(name)), PAGE)
    fill_table("traced", "\n".join(short()))
    return PAGE
