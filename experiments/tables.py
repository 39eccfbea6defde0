"""Writes the accuracy table into README from the files of `experiments.accuracy`.

python -m experiments.tables            # README's table and the README example's output
python -m experiments.tables --print    # only print the table and the worst groups
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import readme

RESULTS = Path(__file__).parent / "results"
SPLITS = ("random", "unseen-architecture", "unseen-device", "unseen-both")
PREDICTORS = ("gnn", "roofline", "flops")
WORST = 10
AVERAGED = ("mape", "median_ape", "p90_ape", "bias", "within_10", "spearman", "coverage")


def load_results(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """All finished folds, without the smoke tests."""
    files = sorted(folder.glob("accuracy-fold*-seed[0-9].json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in files]


def merged(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Scores over all folds: means weighted by rows; medians and percentiles are such means too."""
    rows = []
    for split in SPLITS:
        for predictor in PREDICTORS:
            parts = [
                row
                for result in results
                for row in result["scores"]
                if (row["split"], row["predictor"]) == (split, predictor)
            ]
            if not parts:
                continue
            weights = np.array([part["rows"] for part in parts], dtype=float)
            merged_row: dict[str, Any] = {"split": split, "predictor": predictor}
            merged_row["rows"] = int(weights.sum())
            for name in (
                "mape",
                "median_ape",
                "p90_ape",
                "bias",
                "within_10",
                "spearman",
                "coverage",
            ):
                values = [part[name] for part in parts]
                known = None not in values
                merged_row[name] = float(np.average(values, weights=weights)) if known else None
            rows.append(merged_row)
    return rows


def intervals(results: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Half-widths of 90% intervals: the 90% quantile of held-out errors, averaged over folds.

    Devices with measurements take those of unseen families, new devices those of unseen devices and
    families together.
    """
    found: dict[str, float] = {}
    for name, splits in (
        ("known_device", ("unseen-architecture",)),
        ("new_device", ("unseen-device", "unseen-both")),
    ):
        for mode in ("train", "infer"):
            parts = [
                result["details"][split]["intervals"][mode]
                for result in results
                for split in splits
            ]
            parts = [part for part in parts if part["rows"]]
            if parts:
                weights = [part["rows"] for part in parts]
                widths = [part["half_width"] for part in parts]
                found[f"{name}|{mode}"] = float(np.average(widths, weights=weights))
    return found


def markdown(results: Sequence[dict[str, Any]]) -> str:
    """The table of README."""
    rows = {(row["split"], row["predictor"]): row for row in merged(results)}
    lines = [
        "| held out | rows | MAPE | median | p90 | bias | roofline | FLOPs regression |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for split in SPLITS:
        if (split, "gnn") not in rows:
            continue
        g = rows[split, "gnn"]
        others = [f"{rows[split, name]['mape']:.0%}" for name in PREDICTORS[1:]]
        lines.append(
            f"| {split.replace('-', ' ')} | {g['rows']} | **{g['mape']:.1%}** | "
            f"{g['median_ape']:.1%} | {g['p90_ape']:.1%} | {g['bias']:+.1%} | "
            f"{' | '.join(others)} |"
        )
    folds = ", ".join(str(result["fold"]) for result in results)
    seeds = ", ".join(sorted({str(result["seed"]) for result in results}))
    versions = results[0]["versions"]
    lines += [
        "",
        f"Joint folds {folds} of 5, seed {seeds}, torch {versions['torch']}; one network per fold "
        "(the shipped weights average several). A family is held out with all its models in all "
        "libraries, a device with every card of its chip. Roofline: larger of compute and memory "
        "time with one factor fitted per device; its and the FLOPs regression's columns are MAPE.",
    ]
    return "\n".join(lines)


def worst(results: Sequence[dict[str, Any]]) -> str:
    """The worst families and devices, with bias and spread of the logarithm."""
    lines = []
    for title, split, part, name in (
        ("worst families", "unseen-architecture", "by_family", "family"),
        ("worst devices", "unseen-device", "by_device", "gpu"),
    ):
        rows = [row for result in results for row in result["details"][split][part]]
        rows.sort(key=lambda row: -row["mape"])
        lines.append(title)
        for row in rows[:WORST]:
            what = " ".join(str(row[key]) for key in (name, "mode", "precision") if key in row)
            lines.append(
                f"  {what:<48}{row['rows']:>5} rows  MAPE {row['mape']:.1%}"
                f"  bias {row['bias']:+.2f}  spread {row['spread']:.2f}"
            )
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print", action="store_true", help="change no file")
    args = parser.parse_args()
    results = load_results()
    if not results:
        raise SystemExit("no results: run `python -m experiments.accuracy --fold 1` first")
    table = markdown(results)
    print(table)
    print(worst(results))
    if not args.print:
        readme.fill_table("accuracy", table)
        readme.main()


if __name__ == "__main__":
    main()
