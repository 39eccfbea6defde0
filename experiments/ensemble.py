"""What does the mean of several networks bring over one of them?

    python -m experiments.ensemble [--runs FOLDER] [--write]

Reads the predictions that `experiments.accuracy` leaves in `FOLDER/accuracy-foldN-seedS/` for every
seed of a fold, averages them in the logarithm as the shipped weights are averaged, and scores the
mean on the same held-out rows. Folds with one seed are left out. Writes `results/ensemble.json`.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np

from experiments import study_tables
from experiments.accuracy import PREDICTED, plain
from experiments.provenance import RESULTS, provenance, write_result
from prenet_gnn.training.metrics import summary

FOLDER = re.compile(r"accuracy-fold(\d)-seed(\d)$")
KEPT = ("rows", "mape", "median_ape", "p90_ape", "bias")


def found_runs(folder: Path) -> dict[int, list[Path]]:
    """Files of predictions by fold, one for each seed."""
    runs: dict[int, list[Path]] = {}
    for path in sorted(folder.glob(f"accuracy-fold*-seed*/{PREDICTED}")):
        match = FOLDER.search(path.parent.name)
        if match:
            runs.setdefault(int(match[1]), []).append(path)
    return {fold: paths for fold, paths in runs.items() if len(paths) > 1}


def mean_of(parts: list[np.ndarray]) -> np.ndarray:
    """Geometric mean of the predictions of several networks."""
    mean: np.ndarray = np.exp(np.mean(np.log(parts), axis=0))
    return mean


def score(true: np.ndarray, parts: list[np.ndarray]) -> dict[str, Any]:
    """Scores of the mean of several predictions and of each alone."""
    together = plain(summary(true, mean_of(parts)).to_dict())
    alone = [summary(true, part).mape for part in parts]
    return {
        "networks": len(parts),
        **{name: together[name] for name in KEPT},
        "mape_of_one": float(np.mean(alone)),
        "mape_of_one_sd": float(np.std(alone, ddof=1)),
    }


def study(folder: Path) -> list[dict[str, Any]]:
    """Scores by fold and split."""
    from prenet_gnn.data.splits import joint_fold
    from prenet_gnn.training.prepare import prepare_rows

    runs = found_runs(folder)
    if not runs:
        raise SystemExit(
            f"no fold in '{folder}' has predictions of two seeds: run `python -m "
            "experiments.accuracy --fold 1 --seed 0` and `--seed 1` first"
        )
    rows = prepare_rows(None)
    lines = []
    for number, paths in runs.items():
        tables = [np.load(path, allow_pickle=False) for path in paths]
        for split, chosen in joint_fold(rows.frame, number).test.items():
            parts = [table[split] for table in tables]
            lines.append({"fold": number, "split": split, **score(rows.seconds[chosen], parts)})
    return lines


def merged(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over folds by split, weighted by rows."""
    found = []
    for split in dict.fromkeys(line["split"] for line in lines):
        parts = [line for line in lines if line["split"] == split]
        weights = np.array([part["rows"] for part in parts], dtype=float)
        line: dict[str, Any] = {"split": split, "networks": parts[0]["networks"]}
        line["rows"] = int(weights.sum())
        for name in ("mape", "median_ape", "p90_ape", "bias", "mape_of_one", "mape_of_one_sd"):
            line[name] = float(np.average([part[name] for part in parts], weights=weights))
        found.append(line)
    return found


def table(lines: list[dict[str, Any]]) -> str:
    """The table of `docs/accuracy.md`."""
    head = ("held out", "rows", "networks", "MAPE of one", "of the mean", "median", "p90", "bias")
    rows = [
        (
            line["split"].replace("-", " "),
            str(line["rows"]),
            str(line["networks"]),
            f"{line['mape_of_one']:.1%} ± {line['mape_of_one_sd']:.1%}",
            f"**{line['mape']:.1%}**",
            f"{line['median_ape']:.1%}",
            f"{line['p90_ape']:.1%}",
            f"{line['bias']:+.1%}",
        )
        for line in lines
    ]
    return study_tables.table(head, rows)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=RESULTS)
    parser.add_argument("--write", action="store_true", help="write results/ensemble.json")
    args = parser.parse_args()
    lines = study(args.runs)
    together = merged(lines)
    print(table(together))
    if args.write:
        made = provenance("python -m experiments.ensemble")
        write_result("ensemble", {"splits": together, "folds": lines, **made})


if __name__ == "__main__":
    main()
