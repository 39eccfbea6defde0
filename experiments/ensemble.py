"""What does the mean of several networks bring over one of them?

    python -m experiments.ensemble [--runs FOLDER] [--write]

Reads the predictions that `experiments.accuracy` leaves in `FOLDER/accuracy-foldN-seedS/` for every
seed of a fold, averages them in the logarithm as the shipped weights are averaged, and scores the
mean on the same held-out rows. Folds with one seed are left out. Writes `results/ensemble.json`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from experiments.accuracy import PREDICTED
from experiments.shared import markdown
from experiments.shared.averages import grouped, over_folds
from experiments.shared.command import WRITE, Option, Options, command
from experiments.shared.results import RESULTS, Result, provenance, write_result
from prenet_gnn.training.metrics import summary

FOLDER = re.compile(r"accuracy-fold(\d)-seed(\d)$")
SCORES = ("mape", "median_ape", "p90_ape", "bias")
OF_ONE = ("mape_of_one", "mape_of_one_sd")


def found_runs(folder: Path) -> dict[int, list[Path]]:
    """Files of predictions by fold, one for each seed."""
    paths = sorted(folder.glob(f"accuracy-fold*-seed*/{PREDICTED}"))
    named = [(match, path) for path in paths if (match := FOLDER.search(path.parent.name))]
    runs = grouped(named, lambda pair: int(pair[0][1]))
    return {fold: [path for _, path in some] for fold, some in runs.items() if len(some) > 1}


def mean_of(parts: list[np.ndarray]) -> np.ndarray:
    """Geometric mean of the predictions of several networks."""
    mean: np.ndarray = np.exp(np.mean(np.log(parts), axis=0))
    return mean


def score(true: np.ndarray, parts: list[np.ndarray]) -> dict[str, Any]:
    """Scores of the mean of several predictions and of each alone."""
    together = summary(true, mean_of(parts)).to_dict()
    alone = [summary(true, part).mape for part in parts]
    return {
        "networks": len(parts),
        **{name: together[name] for name in ("rows", *SCORES)},
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
            parts = [found[split] for found in tables]
            lines.append({"fold": number, "split": split, **score(rows.seconds[chosen], parts)})
    return lines


def merged(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over folds by split."""
    return [
        {"split": split, "networks": parts[0]["networks"], **over_folds(parts, (*SCORES, *OF_ONE))}
        for split, parts in grouped(lines, lambda line: line["split"]).items()
    ]


def table(result: Result) -> str:
    """Scores of the mean of several networks beside those of one."""
    columns = {
        "held out": markdown.spaced("split"),
        "rows": "{rows}",
        "networks": "{networks}",
        "MAPE of one": "{mape_of_one:.1%} ± {mape_of_one_sd:.1%}",
        "of the mean": "**{mape:.1%}**",
        "median": "{median_ape:.1%}",
        "p90": "{p90_ape:.1%}",
        "bias": "{bias:+.1%}",
    }
    return markdown.signed(result, markdown.table(result["splits"], columns))


@command(Option("--runs", type=Path, default=RESULTS), WRITE)
def main(options: Options) -> None:
    """Scores the runs of a folder."""
    lines = study(options.runs)
    made = provenance("python -m experiments.ensemble")
    result = {"splits": merged(lines), "folds": lines, **made}
    print(table(result))
    if options.write:
        write_result("ensemble", result)


if __name__ == "__main__":
    main()
