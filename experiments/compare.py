"""Is the graph network better than PreNeT's regressors on pooled features and than simpler rules?

    python -m experiments.compare --fold 1 [--seeds 1] [--quick]

Fits every baseline to the training rows of a joint fold, the one that `experiments.accuracy` leaves
out, with PreNeT's four sets of features, and scores them on the same held-out rows. Writes
`results/compare-foldN.csv` (one line per predictor, features, split and seed), `.json` and `.png`;
the network's line comes from the file of `experiments.accuracy`. Goes on where it was stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.layers.summed import LayerSum
from experiments.layers.tables import load_operators
from experiments.shared import markdown
from experiments.shared.command import FOLDS, OUT, QUICK, SEEDS, Option, Options, command
from experiments.shared.ledger import Ledger
from experiments.shared.networks import rows_and_fold
from experiments.shared.plots import bars
from experiments.shared.results import Result, folder_of, plain, provenance, write_result
from experiments.writing.accuracy import SPLITS, load_results, part_scores
from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.data.splits import Split
from prenet_gnn.data.tables import find_data_dir
from prenet_gnn.evaluation.baselines import get_baseline
from prenet_gnn.evaluation.baselines.pooling import (
    FEATURE_SETS,
    columns_of,
    pooled_features,
    work_sums,
)
from prenet_gnn.training.metrics import summary
from prenet_gnn.training.rows import Rows

SIMPLE = ("mean", "flops", "roofline")
POOLED = ("linear", "forest", "boosting", "xgboost", "mlp")
SCORES = ("rows", "mape", "median_ape", "p90_ape", "bias", "within_10", "spearman")
NO_FEATURES = "-"
# Rows per split for the sum over layers, which predicts hundreds of calls for each of them.
SUMMED_ROWS = 1500
OPERATORS_PER_FAMILY = 6000

Predict = Callable[[str, np.ndarray], np.ndarray]


@dataclass
class Comparison:
    """One fold: fits predictors to its training rows and writes down their scores."""

    rows: Rows
    fold: Split
    ledger: Ledger

    def score(self, name: str, features: str, seed: int, make: Callable[[], Predict]) -> None:
        """Fits one predictor, unless its scores are there, and scores it on every split."""
        kinds = [kind for kind, chosen in self.fold.test.items() if len(chosen)]
        key = {"predictor": name, "features": features, "seed": seed}
        if all(self.ledger.has(split=kind, **key) for kind in kinds):
            return
        predict = make()
        for kind in kinds:
            chosen = self.fold.test[kind]
            if name == "layer sum":
                chosen = thinned(chosen, SUMMED_ROWS)
            scores = summary(self.rows.seconds[chosen], predict(kind, chosen))
            line = scores.to_dict()
            if not self.ledger.has(split=kind, **key):
                self.ledger.add({**key, "split": kind, **{n: line[n] for n in SCORES}})
            print(f"{name:<10}{features:<10}{kind:<22}{scores.mape:>9.1%}", flush=True)

    def table_predictor(
        self, name: str, train: pd.DataFrame, tables: dict[str, pd.DataFrame], seed: int
    ) -> Predict:
        """A baseline that learns from tables, with those of the splits at hand."""
        baseline = get_baseline(name)
        if hasattr(baseline, "seed"):
            baseline.seed = seed
        baseline.fit(train, self.rows.seconds[self.fold.train])
        names = list(train.columns)
        return lambda kind, chosen: baseline.predict(tables[kind][names])

    def layer_sum(self, summed: LayerSum, features: str, seed: int) -> Predict:
        """The sum of one regressor per layer family."""
        summed.fit(features, seed=seed)

        def predict(kind: str, chosen: np.ndarray) -> np.ndarray:
            parts = [self._summed(summed, part) for part in np.array_split(chosen, 10) if len(part)]
            return np.concatenate(parts)

        return predict

    def _summed(self, summed: LayerSum, chosen: np.ndarray) -> np.ndarray:
        rows = self.rows
        return summed.predict(
            [
                (
                    rows.store.entries[rows.keys[i]],
                    rows.workloads[i],
                    get_hardware(str(rows.frame.gpu.iat[i])),
                )
                for i in chosen
            ]
        )


def thinned(chosen: np.ndarray, at_most: int) -> np.ndarray:
    """Rows drawn at random, always the same."""
    if len(chosen) <= at_most:
        return chosen
    return np.sort(np.random.default_rng(0).choice(chosen, at_most, replace=False))


def run(fold_number: int, seeds: int, quick: bool, path: Path) -> Ledger:
    """Fits and scores everything for one fold."""
    ledger = Ledger(path)
    rows, fold = rows_and_fold(fold_number)
    if quick:
        test = {kind: thinned(chosen, 200) for kind, chosen in fold.test.items()}
        fold = replace(fold, train=thinned(fold.train, 600), test=test)
    study = Comparison(rows, fold, ledger)
    sums = work_sums(rows, fold.train)
    sums_of = {kind: work_sums(rows, chosen) for kind, chosen in fold.test.items()}
    for name in SIMPLE:
        study.score(name, NO_FEATURES, 0, partial(study.table_predictor, name, sums, sums_of, 0))
    train = pooled_features(rows, fold.train)
    tables = {kind: pooled_features(rows, chosen) for kind, chosen in fold.test.items()}
    runs = [(n, f, s) for s in range(seeds) for n in POOLED for f in FEATURE_SETS]
    for name, features, seed in runs:
        if name == "linear" and seed:
            continue
        part = train[columns_of(train, features)]
        made = partial(study.table_predictor, name, part, tables, seed)
        study.score(name, features, seed, made)
    operators = load_operators(find_data_dir(None))
    summed = LayerSum(operators, fold.devices, 500 if quick else OPERATORS_PER_FAMILY)
    for features in FEATURE_SETS:
        study.score("layer sum", features, 0, partial(study.layer_sum, summed, features, 0))
    return ledger


def found(fold_number: int, ledger: Ledger) -> Result:
    """Mean errors by predictor and split, the network's from the study of accuracy."""
    lines = pd.DataFrame(ledger.rows)
    suffix = lines["features"].map(lambda f: "" if f == NO_FEATURES else f" {f}")
    lines["name"] = lines["predictor"] + suffix
    means = lines.pivot_table(index="name", columns="split", values="mape", sort=False)
    best = means.idxmin()
    runs = load_results(part=f"fold{fold_number}")
    if runs:
        means.loc["graph network"] = pd.Series({s: part_scores(runs, s)["mape"] for s in SPLITS})
    return {
        "fold": fold_number,
        "mape": {str(k): plain(v) for k, v in means.round(4).to_dict("index").items()},
        "best_baseline": best.to_dict(),
        "layer_sum_rows": f"at most {SUMMED_ROWS} per split",
        **provenance(),
    }


def table(result: Result) -> str:
    """Mean error of every predictor on every part of a fold, of several feature sets the best."""
    best: dict[str, dict[str, float]] = {}
    for name, errors in result["mape"].items():
        predictor, _, features = name.rpartition(" ")
        several = features in FEATURE_SETS
        line = best.setdefault(f"{predictor}, best set" if several else name, {})
        for split, error in errors.items():
            if error is not None:
                line[split] = min(error, line.get(split, error))
    splits = list(dict.fromkeys(split for line in best.values() for split in line))
    lines = [
        (name, *(f"{line[split]:.1%}" if split in line else "" for split in splits))
        for name, line in best.items()
    ]
    head = ("predictor", *(split.replace("-", " ") for split in splits))
    return markdown.signed(result, markdown.grid(head, lines))


@command(Option("--fold", type=int, default=1, choices=FOLDS), SEEDS, QUICK, OUT)
def main(options: Options) -> None:
    """Fits and scores, then writes summary and plot."""
    name, folder = f"compare-fold{options.fold}", options.out or folder_of(options.quick)
    ledger = run(options.fold, options.seeds, options.quick, folder / f"{name}.csv")
    result = found(options.fold, ledger)
    print(table(result))
    write_result(name, result, folder)
    errors = result["mape"]
    bars(
        folder / f"{name}.png",
        list(errors),
        {s: [min(line.get(s) or 0.0, 3.0) for line in errors.values()] for s in SPLITS[1:]},
        title=f"MAPE on held-out rows, joint fold {options.fold} (bars end at 300%)",
        unit="MAPE",
        logarithmic=True,
    )


if __name__ == "__main__":
    main()
