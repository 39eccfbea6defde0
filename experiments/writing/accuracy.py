"""Tables of the files of `experiments.accuracy`: averages over seeds, then over folds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.shared.averages import grouped, means, over_folds, over_seeds
from experiments.shared.markdown import Cell, spaced, table
from experiments.shared.protocols import PROTOCOLS
from experiments.shared.results import RESULTS, Result
from prenet_gnn.training.config import load_config

SPLITS = ("random", "unseen-architecture", "unseen-device", "unseen-both")
PREDICTORS = ("gnn", "roofline", "flops")
AVERAGED = ("mape", "median_ape", "p90_ape", "bias", "within_10", "spearman", "coverage")
PARTED = ("mape", "bias", "spread")
WORST = 8
# Situations of intervals, and the splits whose errors they take.
SITUATIONS = {
    "known_device": ("unseen-architecture",),
    "new_device": ("unseen-device", "unseen-both"),
}


def load_results(folder: Path = RESULTS, part: str = "fold*") -> list[Result]:
    """All finished folds, or other parts by the pattern of their name."""
    files = sorted(folder.glob(f"accuracy-{part}-seed[0-9].json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in files]


def by_fold(results: Sequence[Result]) -> list[list[Result]]:
    """Results of every fold, one for each seed."""
    return list(grouped(results, lambda result: result["fold"]).values())


def part_scores(results: Sequence[Result], split: str, predictor: str = "gnn") -> dict[str, Any]:
    """Mean scores of one part over its seeds."""
    lines = (line for result in results for line in result["scores"])
    wanted = [line for line in lines if (line["split"], line["predictor"]) == (split, predictor)]
    return over_seeds(wanted, AVERAGED)


def merged(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Scores over all folds by split and predictor."""
    rows = []
    for split in SPLITS:
        for predictor in PREDICTORS:
            folds = [part_scores(fold, split, predictor) for fold in by_fold(results)]
            if not any(folds):
                continue
            parts = [part for part in folds if part]
            row = {"split": split, "predictor": predictor, **over_folds(parts, AVERAGED)}
            spreads = [part["mape_sd"] for part in parts if part["mape_sd"] is not None]
            rows.append(row | ({"mape_sd": float(np.mean(spreads))} if spreads else {}))
    return rows


def intervals(results: Sequence[Result]) -> dict[str, float]:
    """Half-widths of 90% intervals: the 90% quantile of held-out errors, averaged over folds."""
    found: dict[str, float] = {}
    for name, splits in SITUATIONS.items():
        for mode in ("train", "infer"):
            parts = [
                (part, part["rows"] / len(fold))
                for fold in by_fold(results)
                for result in fold
                for split in splits
                if (part := result["details"][split]["intervals"][mode])["rows"]
            ]
            if parts:
                lines, weights = zip(*parts, strict=True)
                width = means(lines, ["half_width"], weights)["half_width"]
                found[f"{name}|{mode}"] = width or 0.0
    return found


def _mape(row: dict[str, Any]) -> str:
    spread = f" ± {row['mape_sd']:.1%}" if row.get("mape_sd") is not None else ""
    return f"**{row['mape']:.1%}**{spread}"


SCORES: dict[str, Cell] = {
    "MAPE": _mape, "median": "{median_ape:.1%}", "p90": "{p90_ape:.1%}", "bias": "{bias:+.1%}",
    "roofline": "{roofline:.0%}",
}  # fmt: skip


def accuracy(results: Sequence[Result]) -> str:
    """The table of README."""
    rows = {(row["split"], row["predictor"]): row for row in merged(results)}
    lines = [
        rows[split, "gnn"] | {name: rows[split, name]["mape"] for name in PREDICTORS[1:]}
        for split in SPLITS
        if (split, "gnn") in rows
    ]
    columns = {"held out": spaced("split"), "rows": "{rows}", **SCORES}
    text = table(lines, columns | {"FLOPs regression": "{flops:.0%}"})
    folds = ", ".join(map(str, sorted({result["fold"] for result in results})))
    seeds = ", ".join(sorted({str(result["seed"]) for result in results}))
    between = any("mape_sd" in row for row in rows.values())
    spread = "± is the standard deviation between seeds of one fold. " if between else ""
    return (
        f"{text}\n\nJoint folds {folds} of 5, seed {seeds}, torch "
        f"{results[0]['versions']['torch']}; one member per fold (the shipped weights average "
        f"{load_config().members}). {spread}A family is held out with all its models in all "
        "libraries, a device with every card of its chip. Roofline: larger of compute and memory "
        "time with one factor fitted per device; its and the FLOPs regression's columns are MAPE."
    )


def transfer(folder: Path = RESULTS) -> str:
    """The table of the transfer protocols; empty where none was run."""
    lines = []
    for name in PROTOCOLS:
        runs = load_results(folder, name)
        for split in runs[0]["details"] if runs else ():
            roofline = part_scores(runs, split, "roofline")["mape"]
            lines.append({"split": split, "roofline": roofline, **part_scores(runs, split)})
    columns = {"protocol": "{split}", "rows": "{rows}", "seeds": "{seeds}", **SCORES}
    return table(lines, columns) if lines else ""


def held_out_devices(results: Sequence[Result]) -> str:
    """What the error of every device is made of where a fold holds it out; the worst first.

    Bias and spread are mean and standard deviation of the logarithm of predicted over measured, of
    all rows that `experiments.accuracy` lists (groups of five rows or more), averaged over seeds.
    """
    lines = []
    for name, rows in _listed(results, "unseen-device", "by_device", ("gpu",)).items():
        weights = [row["rows"] / row["seeds"] for row in rows]
        line = {"name": name, "rows": sum(weights), **means(rows, PARTED, weights)}
        squares = [row["spread"] ** 2 + (row["bias"] - line["bias"]) ** 2 for row in rows]
        lines.append(line | {"spread": float(np.sqrt(np.average(squares, weights=weights)))})
    columns = {"held out": "{name}", "rows": "{rows:.0f}", "MAPE": "{mape:.1%}"}
    columns |= {"bias": "{bias:+.2f}", "spread": "{spread:.2f}"}
    return table(sorted(lines, key=lambda line: -line["mape"]), columns)


def worst(results: Sequence[Result]) -> str:
    """The worst families and devices, with bias and spread of the logarithm, over all seeds."""
    columns = {"rows": "{rows}", "MAPE": "{mape:.1%}", "bias": "{bias:+.2f}"}
    columns |= {"spread": "{spread:.2f}"}
    tables = []
    for title, split, part, keys in (
        ("worst families", "unseen-architecture", "by_family", ("family",)),
        ("worst devices", "unseen-device", "by_device", ("gpu", "mode", "precision")),
    ):
        lines = [
            {"name": name, "rows": rows[0]["rows"], **means(rows, PARTED)}
            for name, rows in _listed(results, split, part, keys).items()
        ]
        lines = sorted(lines, key=lambda line: -line["mape"])[:WORST]
        tables.append(table(lines, {title: "{name}", **columns}))
    return "\n\n".join(tables)


def _listed(
    results: Sequence[Result], split: str, part: str, keys: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Listed groups of rows by name; each says how many seeds its fold has."""
    rows = [
        row | {"seeds": len(fold)}
        for fold in by_fold(results)
        for result in fold
        for row in result["details"][split][part]
    ]
    return grouped(rows, lambda row: " ".join(str(row[key]) for key in keys))
