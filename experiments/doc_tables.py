"""Tables of the pages in docs/ from the result files of the smaller studies."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments import ensemble, study_tables
from experiments.provenance import RESULTS
from experiments.study_tables import table

Table = Callable[[dict[str, Any]], str]


def outside(result: dict[str, Any]) -> str:
    """Errors with and without a warning over all parts, and what intervals cover by part."""
    names = {"any": "any", "new_device": "device", "format": "number format", "graph": "network"}
    rows = [
        (
            names[row["warning"]],
            f"{row['share']:.0%}",
            _error(row["with"]),
            _error(row["without"]),
            "" if row["auroc"] is None else f"{row['auroc']:.2f}",
        )
        for row in result["separation"]
        if row["split"] == "all"
    ]
    head = (
        "warning of",
        "warned",
        "median / MAPE / over 20% with",
        "without",
        "AUROC of the score",
    )
    covered = [
        (
            row["split"].replace("-", " "),
            str(row["rows"]),
            f"±{row['half_width']:.2f}",
            f"{row['coverage']:.1%}",
        )
        for row in result["coverage"]
        if row["zone"] == "all"
    ]
    sides = ("held out", "rows", "half-width", "coverage of 90% intervals")
    return f"{table(head, rows)}\n\n{table(sides, covered)}\n\n{made(result)}"


def _error(part: dict[str, Any]) -> str:
    return f"{part['median']:.1%} / {part['mape']:.1%} / {part['over_20']:.0%}"


def ensembles(result: dict[str, Any]) -> str:
    """Scores of the mean of several networks beside those of one."""
    return f"{ensemble.table(result['splits'])}\n\n{made(result)}"


def breakdown(result: dict[str, Any]) -> str:
    """Means over models of how shares agree."""
    rows = [
        (
            row["mode"],
            row["by"],
            str(row["models"]),
            f"{row['spearman']:.2f}",
            f"{100 * row['mean_difference']:.1f} points",
            f"{row['misplaced']:.1%}",
            f"{row['costliest_found']:.0%}",
        )
        for row in result["means"]
    ]
    head = (
        "mode", "share by", "models", "rank correlation", "mean difference", "misplaced time",
        "costliest found",
    )  # fmt: skip
    return f"{table(head, rows)}\n\n{made(result)}"


def memory(result: dict[str, Any]) -> str:
    """Right verdicts at both ends, and errors of peaks."""
    verdicts = [
        (
            row["group"],
            str(row["verdicts"]),
            f"{row['fits_right']:.1%}",
            f"{row['one_up_right']:.1%}",
        )
        for row in result["verdicts"]
    ]
    peaks = [
        (row["source"], row["predictor"], str(row["peaks"]), f"{row['mape']:.1%}",
         f"{row['bias']:+.1%}")
        for row in result["peaks"]
    ]  # fmt: skip
    first = table(("predictor", "verdicts", "right where it fits", "right one step up"), verdicts)
    second = table(("peaks of", "predictor", "peaks", "mean error", "bias"), peaks)
    tools = ", ".join(f"{name} {version}" for name, version in result["tools"].items())
    return f"{first}\n\n{second}\n\n{made(result)} Tools: {tools}."


def ablations(result: dict[str, Any]) -> str:
    """What the error on unseen groups is without single parts of the network or its input."""
    rows = [
        (
            row["change"],
            str(row["runs"]),
            f"{row['unseen-architecture']:.1%}",
            f"{row['unseen-device']:.1%}",
            f"{row['mean']:.1%} ± {row['spread']:.1%}",
            f"{row['difference']:+.1%}, p = {row['p_value']:.2f}" if "p_value" in row else "",
        )
        for row in result["changes"]
    ]
    head = (
        "change", "runs", "unseen architecture", "unseen device", "mean and spread over seeds",
        "difference by group",
    )  # fmt: skip
    size = f"{result['settings']['rows']} rows, {result['settings']['epochs']} epochs a run"
    command = "`python -m experiments.ablations`"
    return f"{table(head, rows)}\n\n{command}, {size}, commit {result['commit']}."


def made(result: dict[str, Any]) -> str:
    """The command, commit and versions of a result."""
    return f"`{result['command']}`, commit {result['commit']}, torch {result['versions']['torch']}."


def cpu_error(result: dict[str, Any]) -> str:
    """Errors for our own CPU before and after calibration."""
    before = result["before"]
    text = (
        f"{before['rows']} measurements of {before['models']} models, uncorrected: mean error "
        f"{before['mape']:.1%}, median {before['median']:.1%}, predicted over measured "
        f"{before['median_ratio']:.2f} at the median."
    )
    return f"{text}\n\n{curve(result['curve'])}\n\n{made(result)}"


def calibration(result: dict[str, Any]) -> str:
    """Errors on held-out devices before and after calibration."""
    return f"{curve(result['mean'])}\n\n{made(result)}"


def curve(steps: Sequence[dict[str, Any]]) -> str:
    """Mean absolute percentage errors by number of measurements."""
    rows = [
        (
            str(step["count"]),
            f"{step['calibrated']:.1f}% ± {step['spread']:.1f}",
            f"{step['rescaled']:.1f}%",
        )
        for step in steps
    ]
    return table(("measurements", "calibrated", "one factor"), rows)


# What makes the table of a result file, and the page that shows it.
ACCURACY, CHECKING, STUDIES = "accuracy.md", "checking.md", "experiments.md"
TABLES: dict[str, tuple[str, Table]] = {
    "ensemble": (ACCURACY, ensembles),
    "outside": (ACCURACY, outside),
    "breakdown": (ACCURACY, breakdown),
    "memory": (ACCURACY, memory),
    "ablations": (STUDIES, ablations),
    "cpu_error": (CHECKING, cpu_error),
    "calibration-fold1": (CHECKING, calibration),
    "tuning": (STUDIES, study_tables.tuning),
    "compare-fold1": (STUDIES, study_tables.compare),
    "layers": (STUDIES, study_tables.layers),
    "search": (STUDIES, study_tables.search),
}


def texts(folder: Path = RESULTS) -> dict[str, str]:
    """The tables whose result files exist."""
    found = {}
    for name, (_, make) in TABLES.items():
        path = folder / f"{name}.json"
        if path.exists():
            found[name] = make(json.loads(path.read_text(encoding="utf-8")))
    return found
