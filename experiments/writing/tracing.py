"""The summaries in `docs/tracing.md` and README's table, from the files of tracing_tables."""

from __future__ import annotations

from experiments.shared.markdown import DOCS, README, grid, signed
from experiments.shared.results import read_result
from experiments.tracing_tables import STUDIES
from experiments.tracing_tables.common import FOLDER, ledger
from experiments.tracing_tables.coverage import groups
from experiments.writing.pages import put

PAGE = DOCS / "tracing.md"
LIBRARIES = {
    "timm": "all names of the measured data that the installed timm knows",
    "torchvision": "`list_models()` without the quantised",
    "transformers": "one model of each architecture, from a small configuration",
}


def section(name: str) -> str:
    """What stands between the two marks of a table: its summary, and what made it."""
    about = read_result(name, FOLDER)
    if not about:
        return f"Not measured yet: `python -m experiments.tracing_tables {name}`."
    missing = about["rows_wanted"] - about["rows"]
    parts = [f"Not finished: {missing} rows are still to be measured."] if missing else []
    parts.append("\n".join(f"* {line}" for line in about["summary"]))
    return signed(about | {"commit": ", ".join(about["commits"])}, *parts)


def short() -> str:
    """README's table: how many models of each library are traced, all other groups as one."""
    rows, about = ledger("coverage").rows, read_result("coverage", FOLDER)
    if not rows:
        return "Not measured yet: `python -m experiments.tracing_tables coverage`."
    found = groups(rows)
    kinds = [row for name, some in found.items() if name not in LIBRARIES for row in some]
    named = [(name, found[name], LIBRARIES[name]) for name in LIBRARIES if name in found]
    made_up = "inputs, regions, layers, graph networks, diffusion, LoRA"
    named.append(("hand-written", kinds, made_up))
    lines = [
        (title, f"{sum(not row['error'] for row in some)} of {len(some)}", share)
        for title, some, share in named
    ]
    missing = about["rows_wanted"] - about["rows"]
    rest = f"{missing} rows are still to be measured.\n" if missing else ""
    made = f"`{about['command']}`, torch {about['versions']['torch']}."
    return f"{grid(('models', 'traced', 'which'), lines)}\n\n{rest}{made}"


def write() -> None:
    """Writes every summary into the page, and that of coverage as a table into README."""
    for name in STUDIES:
        if name != "coverage":
            put(name, PAGE, section(name))
    put("traced", README, short())
