"""Markdown tables, and the places in README and the pages of docs/ where generated text stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from experiments.shared.results import ROOT, Result

README, DOCS = ROOT / "README.md", ROOT / "docs"
# A cell: a format of the row's fields, or a function of the row.
Cell = str | Callable[[Any], object]


def table(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, Cell]) -> str:
    """A table with a line for each row; `columns` maps titles to cells such as `{mape:.1%}`."""
    lines = [
        [str(cell(row)) if callable(cell) else cell.format_map(row) for cell in columns.values()]
        for row in rows
    ]
    return grid([*columns], lines)


def grid(head: Iterable[str], lines: Iterable[Iterable[object]]) -> str:
    """A table of cells that are ready."""
    head = list(head)
    top = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*top, *(f"| {' | '.join(map(str, line))} |" for line in lines)])


def spaced(name: str) -> Callable[[Mapping[str, Any]], str]:
    """A cell with spaces for the hyphens of a field."""
    return lambda row: str(row[name]).replace("-", " ")


def signed(result: Result, *parts: str) -> str:
    """Tables and texts, and beneath them the command, commit and version of their result."""
    versions = f"commit {result['commit']}, torch {result['versions']['torch']}"
    return "\n\n".join([*parts, f"`{result['command']}`, {versions}."])


def has_table(name: str, page: Path) -> bool:
    """Whether a page has a place for a table."""
    return f"<!-- table:{name} -->" in page.read_text(encoding="utf-8")


def fill_table(name: str, text: str, page: Path = README) -> None:
    """Replaces what stands between `<!-- table:NAME -->` and `<!-- /table:NAME -->`."""
    marks = f"<!-- table:{name} -->", f"<!-- /table:{name} -->"
    pattern = re.escape(marks[0]) + r"\n.*?" + re.escape(marks[1])
    _replace(page, pattern, f"{marks[0]}\n{text.strip()}\n{marks[1]}")


def fill_output(name: str, text: str, page: Path = README) -> None:
    """Replaces the code block that follows `<!-- NAME -->`."""
    mark = f"<!-- {name} -->"
    pattern = re.escape(mark) + r"\n```text\n.*?```"
    _replace(page, pattern, f"{mark}\n```text\n{text.rstrip()}\n```")


def code_block(name: str, page: Path = README) -> str:
    """Gives the code block that follows `<!-- NAME -->`."""
    text = page.read_text(encoding="utf-8")
    found = re.search(rf"<!-- {re.escape(name)} -->\n```\w*\n(.*?)```", text, re.DOTALL)
    if found is None:
        raise SystemExit(f"{page} has no code block after '<!-- {name} -->'")
    return found[1]


def _replace(page: Path, pattern: str, new: str) -> None:
    text = page.read_text(encoding="utf-8")
    changed, count = re.subn(pattern, lambda _: new, text, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{page}: expected one place for {new.splitlines()[0]}, found {count}")
    page.write_text(changed, encoding="utf-8")
