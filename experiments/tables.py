"""Writes the accuracy table into README from the files of `experiments.accuracy`.

python -m experiments.tables            # README's table and example, tables of docs/
python -m experiments.tables --print    # only print the tables and the worst groups
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import doc_tables, readme
from experiments.protocols import PROTOCOLS
from experiments.provenance import RESULTS
from prenet_gnn.training.config import load_config

DOCS = Path(__file__).resolve().parents[1] / "docs"
SPLITS = ("random", "unseen-architecture", "unseen-device", "unseen-both")
PREDICTORS = ("gnn", "roofline", "flops")
WORST = 10
# The page of each table that this file makes.
PAGES = {"transfer": "accuracy.md", "held-out-devices": "limits.md", "worst": "limits.md"}
AVERAGED = ("mape", "median_ape", "p90_ape", "bias", "within_10", "spearman", "coverage")


def load_results(folder: Path = RESULTS, part: str = "fold*") -> list[dict[str, Any]]:
    """All finished folds, or other parts by the pattern of their name, without the smoke tests."""
    files = sorted(folder.glob(f"accuracy-{part}-seed[0-9].json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in files]


def over_seeds(results: Sequence[dict[str, Any]], split: str, predictor: str) -> dict[str, Any]:
    """Mean scores of one part over its seeds; `mape_sd` is the standard deviation between them."""
    rows = [
        row
        for result in results
        for row in result["scores"]
        if (row["split"], row["predictor"]) == (split, predictor)
    ]
    if not rows:
        return {}
    found: dict[str, Any] = {"rows": rows[0]["rows"], "seeds": len(rows), "mape_sd": None}
    for name in AVERAGED:
        values = [row[name] for row in rows]
        found[name] = None if None in values else float(np.mean(values))
    if len(rows) > 1:
        found["mape_sd"] = float(np.std([row["mape"] for row in rows], ddof=1))
    return found


def by_fold(results: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Results of every fold, one for each seed."""
    numbers = sorted({result["fold"] for result in results})
    return [[result for result in results if result["fold"] == number] for number in numbers]


def merged(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Scores over all folds: means weighted by rows; medians and percentiles are such means too.

    Seeds of a fold are averaged first, so that a fold with more seeds counts no more than another.
    """
    rows = []
    for split in SPLITS:
        for predictor in PREDICTORS:
            folds = [over_seeds(fold, split, predictor) for fold in by_fold(results)]
            parts = [part for part in folds if part]
            if not parts:
                continue
            weights = np.array([part["rows"] for part in parts], dtype=float)
            merged_row: dict[str, Any] = {"split": split, "predictor": predictor}
            merged_row["rows"] = int(weights.sum())
            for name in AVERAGED:
                values = [part[name] for part in parts]
                known = None not in values
                merged_row[name] = float(np.average(values, weights=weights)) if known else None
            spreads = [part["mape_sd"] for part in parts if part["mape_sd"] is not None]
            if spreads:
                merged_row["mape_sd"] = float(np.mean(spreads))
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
            seeds = Counter(result["fold"] for result in results)
            counts = [seeds[result["fold"]] for result in results for _ in splits]
            pairs = [pair for pair in zip(parts, counts, strict=True) if pair[0]["rows"]]
            if pairs:
                parts = [part for part, _ in pairs]
                weights = [part["rows"] / count for part, count in pairs]
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
            f"| {split.replace('-', ' ')} | {g['rows']} | **{g['mape']:.1%}**{_spread(g)} | "
            f"{g['median_ape']:.1%} | {g['p90_ape']:.1%} | {g['bias']:+.1%} | "
            f"{' | '.join(others)} |"
        )
    folds = ", ".join(map(str, sorted({result["fold"] for result in results})))
    seeds = ", ".join(sorted({str(result["seed"]) for result in results}))
    versions = results[0]["versions"]
    between = any("mape_sd" in row for row in rows.values())
    spread = "± is the standard deviation between seeds of one fold. " if between else ""
    lines += [
        "",
        f"Joint folds {folds} of 5, seed {seeds}, torch {versions['torch']}; one member per fold "
        f"(the shipped weights average {_members()}). {spread}A family is held out with all its "
        "models in all libraries, a device with every card of its chip. Roofline: larger of "
        "compute and memory time with one factor fitted per device; its and the FLOPs "
        "regression's columns are MAPE.",
    ]
    return "\n".join(lines)


def _members() -> int:
    """Networks in the shipped weights."""
    return load_config().members


def _spread(row: dict[str, Any]) -> str:
    """The standard deviation between seeds, where there are several."""
    return f" ± {row['mape_sd']:.1%}" if row.get("mape_sd") is not None else ""


def transfer_markdown(folder: Path = RESULTS) -> str:
    """The table of the transfer protocols; empty where none was run."""
    lines = []
    for name in PROTOCOLS:
        results = load_results(folder, name)
        splits = [s for result in results[:1] for s in result["details"]]
        for split in splits:
            lines.append(_line(split, over_seeds(results, split, "gnn"), results, split))
    head = "| protocol | rows | seeds | MAPE | median | p90 | bias | roofline |"
    return "\n".join([head, "|---|---|---|---|---|---|---|---|", *lines]) if lines else ""


def held_out_markdown(results: Sequence[dict[str, Any]]) -> str:
    """What the error of every device is made of where a fold holds it out; the worst first.

    Bias and spread are mean and standard deviation of the logarithm of predicted over measured, of
    all rows that `experiments.accuracy` lists (groups of five rows or more), averaged over seeds.
    """
    groups: dict[str, list[tuple[float, dict[str, Any]]]] = {}
    for fold in by_fold(results):
        for result in fold:
            for row in result["details"]["unseen-device"]["by_device"]:
                groups.setdefault(row["gpu"], []).append((row["rows"] / len(fold), row))
    lines = []
    for name, parts in groups.items():
        weights = np.array([weight for weight, _ in parts])
        mape, bias, spread = (
            np.array([row[key] for _, row in parts]) for key in ("mape", "bias", "spread")
        )
        error, mean = np.average(mape, weights=weights), np.average(bias, weights=weights)
        within = np.sqrt(np.average(spread**2 + (bias - mean) ** 2, weights=weights))
        line = f"| {name} | {weights.sum():.0f} | {error:.1%} | {mean:+.2f} | {within:.2f} |"
        lines.append((error, line))
    ordered = [line for _, line in sorted(lines, key=lambda pair: -pair[0])]
    return "\n".join(
        ["| held out | rows | MAPE | bias | spread |", "|---|---|---|---|---|", *ordered]
    )


def _line(title: str, scores: dict[str, Any], results: Sequence[dict[str, Any]], split: str) -> str:
    roofline = over_seeds(results, split, "roofline")["mape"]
    return (
        f"| {title} | {scores['rows']} | {scores['seeds']} | "
        f"**{scores['mape']:.1%}**{_spread(scores)} | {scores['median_ape']:.1%} | "
        f"{scores['p90_ape']:.1%} | {scores['bias']:+.1%} | {roofline:.0%} |"
    )


def worst(results: Sequence[dict[str, Any]]) -> str:
    """The worst families and devices, with bias and spread of the logarithm, over all seeds."""
    lines = []
    for title, split, part, name in (
        ("worst families", "unseen-architecture", "by_family", "family"),
        ("worst devices", "unseen-device", "by_device", "gpu"),
    ):
        groups: dict[str, list[dict[str, Any]]] = {}
        for result in results:
            for row in result["details"][split][part]:
                what = " ".join(str(row[key]) for key in (name, "mode", "precision") if key in row)
                groups.setdefault(what, []).append(row)
        means = {
            what: [float(np.mean([row[key] for row in rows])) for key in ("mape", "bias", "spread")]
            for what, rows in groups.items()
        }
        lines.append(title)
        for what in sorted(means, key=lambda what: -means[what][0])[:WORST]:
            mape, bias, spread = means[what]
            lines.append(
                f"  {what:<48}{groups[what][0]['rows']:>5} rows  MAPE {mape:.1%}"
                f"  bias {bias:+.2f}  spread {spread:.2f}"
            )
    return "\n".join(lines)


def page_of(name: str) -> str:
    """The page that shows a table."""
    return PAGES[name] if name in PAGES else doc_tables.TABLES[name][0]


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
    others = {
        "transfer": transfer_markdown(),
        "held-out-devices": held_out_markdown(results),
        "worst": f"```text\n{worst(results)}\n```",
        **doc_tables.texts(),
    }
    for name, text in others.items():
        if text:
            print(text)
            if not args.print:
                readme.fill_table(name, text, DOCS / page_of(name))
    if not args.print:
        readme.fill_table("accuracy", table)
        readme.main()


if __name__ == "__main__":
    main()
