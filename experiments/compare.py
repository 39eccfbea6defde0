"""Is the graph network better than PreNeT's regressors on pooled features and than simpler rules?

    python -m experiments.compare --fold 1 [--seeds 1] [--quick]

Fits every baseline to the training rows of a joint fold, the one that `experiments.accuracy` leaves
out, with PreNeT's four sets of features, and scores them on the same held-out rows. Writes
`results/compare-foldN.csv` (one line per predictor, features, split and seed), `.json` and `.png`;
the network's line comes from the file of `experiments.accuracy`. Goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.accuracy import plain
from experiments.layer_sum import LayerSum
from experiments.layer_tables import load_operators
from experiments.studies import RESULTS, Ledger, bars, facts, write_json
from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.data.splits import Split, joint_fold
from prenet_gnn.data.tables import find_data_dir
from prenet_gnn.evaluation.baselines import get_baseline
from prenet_gnn.evaluation.baselines.pooling import FEATURE_SETS, columns_of, pooled_features
from prenet_gnn.evaluation.evaluate import pooled
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


class Comparison:
    """One fold: fits predictors to its training rows and writes down their scores."""

    def __init__(self, rows: Rows, fold: Split, ledger: Ledger) -> None:
        """Remembers what to fit to and what to score."""
        self.rows, self.fold, self.ledger = rows, fold, ledger

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
            line = plain(scores.to_dict())
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


def run(fold_number: int, seeds: int, quick: bool, out: Path) -> Ledger:
    """Fits and scores everything for one fold."""
    from prenet_gnn.training.prepare import prepare_rows

    ledger = Ledger(out.with_suffix(".csv"), ("predictor", "features", "split", "seed"), SCORES)
    rows = prepare_rows(None)
    fold = joint_fold(rows.frame, fold_number)
    if quick:
        test = {kind: thinned(chosen, 200) for kind, chosen in fold.test.items()}
        fold = replace(fold, train=thinned(fold.train, 600), test=test)
    study = Comparison(rows, fold, ledger)
    sums, sums_of = pooled(rows, fold.train), {k: pooled(rows, c) for k, c in fold.test.items()}
    for name in SIMPLE:
        study.score(name, NO_FEATURES, 0, lambda n=name: study.table_predictor(n, sums, sums_of, 0))
    train = pooled_features(rows, fold.train)
    tables = {kind: pooled_features(rows, chosen) for kind, chosen in fold.test.items()}
    for seed in range(seeds):
        for name in POOLED:
            if name == "linear" and seed:
                continue
            for features in FEATURE_SETS:
                part = train[columns_of(train, features)]
                study.score(
                    name,
                    features,
                    seed,
                    lambda n=name, p=part, s=seed: study.table_predictor(n, p, tables, s),
                )
    operators = load_operators(find_data_dir(None))
    summed = LayerSum(operators, fold.devices, 500 if quick else OPERATORS_PER_FAMILY)
    for features in FEATURE_SETS:
        study.score("layer sum", features, 0, lambda f=features: study.layer_sum(summed, f, 0))
    return ledger


def network_scores(fold_number: int) -> dict[str, float]:
    """MAPE of the graph network by split, from the study of accuracy; empty if it has not run."""
    found: dict[str, list[float]] = {}
    for path in sorted(RESULTS.glob(f"accuracy-fold{fold_number}-seed[0-9].json")):
        for row in json.loads(path.read_text(encoding="utf-8"))["scores"]:
            if row["predictor"] == "gnn":
                found.setdefault(row["split"], []).append(row["mape"])
    return {split: float(np.mean(values)) for split, values in found.items()}


def report(fold_number: int, ledger: Ledger, out: Path) -> None:
    """Writes the summary and the plot and prints a table."""
    table = pd.DataFrame(ledger.rows).astype({"mape": float})
    table["name"] = table["predictor"] + table["features"].map(
        lambda f: "" if f == NO_FEATURES else f" {f}"
    )
    means = table.pivot_table(index="name", columns="split", values="mape", sort=False)
    network = network_scores(fold_number)
    if network:
        means.loc["graph network"] = pd.Series(network)
    print(means.map(lambda v: f"{v:.1%}").to_string())
    best = means.drop(index="graph network", errors="ignore").idxmin()
    write_json(
        out.with_suffix(".json"),
        {
            "fold": fold_number,
            "mape": {str(k): v for k, v in means.round(4).to_dict("index").items()},
            "best_baseline": best.to_dict(),
            "layer_sum_rows": f"at most {SUMMED_ROWS} per split",
            **facts(),
        },
    )
    shown = [s for s in ("unseen-architecture", "unseen-device", "unseen-both") if s in means]
    bars(
        out.with_suffix(".png"),
        [str(name) for name in means.index],
        {split: means[split].clip(upper=3.0).tolist() for split in shown},
        title=f"MAPE on held-out rows, joint fold {fold_number} (bars end at 300%)",
        unit="MAPE",
        logarithmic=True,
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fold", type=int, default=1, choices=range(5))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="few rows, a smoke test")
    parser.add_argument("--out", type=Path, help="name of the result files, without suffix")
    args = parser.parse_args()
    name = f"compare-fold{args.fold}{'-quick' if args.quick else ''}"
    out = args.out or RESULTS / name
    report(args.fold, run(args.fold, args.seeds, args.quick, out), out)


if __name__ == "__main__":
    main()
