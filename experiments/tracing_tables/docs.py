"""Writes the tables of `docs/tracing.md` and a short one into README, from their result files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from experiments import study_tables
from experiments.readme import fill_table
from experiments.tracing_tables import STUDIES
from experiments.tracing_tables.common import Row, facts, load
from experiments.tracing_tables.coverage import groups
from experiments.tracing_tables.peers import TOOLS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tracing.md"
SHOWN = 8
LIBRARIES = {
    "timm": "all names of the measured data that the installed timm knows",
    "torchvision": "`list_models()` without the quantised",
    "transformers": "one model of each architecture, from a small configuration",
}


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """Lines of a Markdown table."""
    return study_tables.table(list(head), [[str(cell) for cell in row] for row in rows]).split("\n")


def coverage(rows: list[Row]) -> list[str]:
    """One line for each group of models, then every failure."""
    lines = []
    for name, some in groups(rows).items():
        traced = [row for row in some if not row["error"]]
        both = [row for row in traced if row["backends_agree"] != "not compared"]
        agree = sum(row["backends_agree"] == "yes" for row in both)
        unknown = sum(bool(row["unknown_ops"]) for row in traced)
        share = f"{len(traced)} of {len(some)} ({len(traced) / len(some):.1%})"
        lines.append((name, share, f"{agree} of {len(both)}", unknown))
    head = ("models", "traced", "both backends count alike", "with an operator without formula")
    failed = [f"* `{row['model']}`: {row['error']}" for row in rows if row["error"]]
    return [*table(head, lines), "", *(["Not traced:", "", *failed] if failed else [])]


def golden(rows: list[Row]) -> list[str]:
    """Hand, ours and the counter's, forward / backward."""
    names = ("by_hand", "", "counter")
    cells = []
    for row in rows:
        pairs = [[row[f"{n}_{way}".lstrip("_")] for way in ("forward", "backward")] for n in names]
        cells.append((row["model"], *(f"{a:,} / {b:,}" for a, b in pairs), row["how"]))
    return table(("case", "by hand", "prenet", "FlopCounterMode", "how"), cells)


def off(rows: list[Row]) -> list[str]:
    """The rows that are furthest off, beneath the summary."""
    good = [row for row in rows if not row["error"]]
    worst = sorted(good, key=lambda row: -abs(row["error_percent"]))[:SHOWN]
    shown = [(row["model"], f"{row['error_percent']:+.2f}%") for row in worst]
    return ["Furthest off:", "", *table(("model", "error"), shown)]


def verdicts(rows: list[Row]) -> list[str]:
    """The rows that do not agree."""
    wrong = [row for row in rows if row["error"] or not str(row["verdict"]).startswith("equal")]
    if not wrong:
        return []
    shown = [(row["model"], row["error"] or row["verdict"]) for row in wrong]
    return ["Not equal:", "", *table(("model", "what"), shown)]


def speed(rows: list[Row]) -> list[str]:
    """Models, then chains."""
    models = [row for row in rows if row.get("trace_s") and not row["error"]]
    chains = [row for row in rows if row.get("cost_us_per_node") and not row["error"]]
    names = ("model", "nodes", "export_s", "trace_s", "record_s", "trace_over_export")
    head = ("model", "nodes", "torch.export, s", "trace, s", "recorded, s", "trace / export")
    first = [
        (*(row[name] for name in names), f"{row['peak_bytes'] / 2**30:.2f} GiB") for row in models
    ]
    columns = ("nodes", "cost_us_per_node", "saved_us_per_node", "json_us_per_node")
    second = [tuple(row[name] for name in columns) for row in chains]
    units = ("nodes", "costs, µs/node", "saved bytes, µs/node", "JSON there and back, µs/node")
    return [*table((*head, "peak memory"), first), "", *table(units, second)]


def peers(rows: list[Row]) -> list[str]:
    """One line for each model, one column for each tool."""
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        name, _, tool = str(row["model"]).partition(" | ")
        verdict = str(row.get("verdict") or "fails").partition(" (")[0]
        cells.setdefault(name, {})[tool] = f"{verdict}, {row.get('milliseconds', 0)} ms"
    shown = [(name, *(found.get(tool, "") for tool in TOOLS)) for name, found in cells.items()]
    return table(("model", *TOOLS), shown)


WRITERS: dict[str, Callable[[list[Row]], list[str]]] = {
    "coverage": coverage,
    "flops": verdicts,
    "golden": golden,
    "saved": off,
    "batch": verdicts,
    "speed": speed,
    "memory": off,
    "peers": peers,
}


def section(name: str) -> list[str]:
    """The lines between the two marks of a table."""
    rows, about = load(name), facts(name)
    if not rows:
        return [f"Not measured yet: `python -m experiments.tracing_tables {name}`."]
    versions = ", ".join(f"{package} {version}" for package, version in about["versions"].items())
    commits = ", ".join(about["commits"])
    missing = about["rows_wanted"] - about["rows"]
    return [
        *([f"Not finished: {missing} rows are still to be measured.", ""] if missing else []),
        *(f"* {line}" for line in about["summary"]),
        "",
        *WRITERS[name](rows),
        "",
        f"`{about['command']}`, commit {commits}; {versions}; {about['machine']}.",
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
    """Writes every table into the page, and the short one into README."""
    for name in STUDIES:
        fill_table(name, "\n".join(section(name)), PAGE)
    fill_table("traced", "\n".join(short()))
    return PAGE
