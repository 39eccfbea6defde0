"""Do PreNeT's conclusions about single layers hold on other measurements?

    python -m experiments.prenet_layers [--rows 3000] [--records FILE] [--quick]

Three parts, as in the paper (Pourali, Boukani, Khazaei, ICPE 2025), each resumable:
`layers-rmse.csv`, RMSE of its models x feature sets per layer family (its Tables 4 and 5);
`layers-unseen.csv`, RMSE on devices that were left out; `layers-models.csv`, VGG-16 and BERT end to
end beside the paper's own figures. The layers are the operator rows of the collected measurements
and our own sweeps in `records/`. `layers.json` and the plots sum up.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.layer_records import RECORDS, read_layers, record_tables
from experiments.layer_tables import FAMILIES, feature_columns, load_operators, operator_table
from experiments.paper_models import COLUMNS as MODEL_COLUMNS
from experiments.paper_models import KEYS as MODEL_KEYS
from experiments.paper_models import end_to_end
from experiments.studies import RESULTS, Ledger, bars, facts, write_json
from prenet_gnn.data.tables import find_data_dir
from prenet_gnn.evaluation.baselines.pooling import FEATURE_SETS
from prenet_gnn.evaluation.baselines.regressors import make_regressor

MODELS = ("forest", "boosting", "xgboost", "mlp")
TEST_SHARE = 0.2
MS = 1e3
# Families of the paper; the others only serve the sum over whole graphs.
STUDIED = tuple(name for name in FAMILIES if name not in ("softmax", "elementwise"))
FEWEST_ROWS, FEWEST_DEVICES, MOST_DEVICES = 40, 3, 6
UNSEEN_MODELS = ("mlp", "forest")
# What the paper says (facts from its text, Tables 4 and 5, its figures and notebooks).
PAPER = {
    "best reduction": {"model": "boosting", "family": "attention", "percent": 72.6},
    "best model": {
        "attention": "mlp", "embedding": "mlp", "recurrent": "mlp",
        "convolution": "forest", "dense": "forest",
    },
    "unseen RMSE reduction in percent": {
        "convolution": 54.6, "attention": 40.7, "recurrent": 72.5, "embedding": 19.4, "dense": 42.8,
    },
}  # fmt: skip


def fitted_errors(
    train: pd.DataFrame, test: pd.DataFrame, model: str, features: str, seed: int
) -> dict[str, float]:
    """RMSE in milliseconds and MAPE of a model that was fitted to times, as the paper does."""
    columns = feature_columns(train, features)
    made = make_regressor(model, seed)
    made.fit(train[columns].to_numpy(float), MS * train["seconds"].to_numpy(float))
    predicted = np.asarray(made.predict(test[columns].to_numpy(float)), dtype=float)
    true = MS * test["seconds"].to_numpy(float)
    return {
        "train_rows": len(train),
        "test_rows": len(test),
        "rmse_ms": float(np.sqrt(np.mean((predicted - true) ** 2))),
        "mape": float(np.mean(np.abs(predicted / true - 1))),
    }


def random_part(tables: dict[str, pd.DataFrame], seeds: int, ledger: Ledger) -> None:
    """Models x feature sets on rows held out at random."""
    for family, table in tables.items():
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(len(table))
            cut = round(TEST_SHARE * len(table))
            test, train = table.iloc[order[:cut]], table.iloc[order[cut:]]
            for model in MODELS:
                for features in FEATURE_SETS:
                    key = {"family": family, "model": model, "features": features, "seed": seed}
                    if not ledger.has(**key):
                        ledger.add({**key, **fitted_errors(train, test, model, features, seed)})
        print(f"rows held out at random: {family} ({len(table)} rows)", flush=True)


def unseen_part(tables: dict[str, pd.DataFrame], ledger: Ledger) -> None:
    """Without and with PreNeT's features, on one device left out at a time."""
    for family, table in tables.items():
        counts = table["device"].value_counts()
        if len(counts) < FEWEST_DEVICES:
            continue
        for device in counts.index[:MOST_DEVICES]:
            mask = table["device"] == device
            for model in UNSEEN_MODELS:
                for features in (FEATURE_SETS[0], FEATURE_SETS[-1]):
                    key = {"family": family, "device": device, "model": model, "features": features}
                    if not ledger.has(**key):
                        errors = fitted_errors(table[~mask], table[mask], model, features, 0)
                        ledger.add({**key, **errors})
        print(f"devices left out: {family} ({len(counts)} devices)", flush=True)


def reductions(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """RMSE without and with PreNeT's features, and by how many percent they reduce it."""
    means = table.pivot_table(index=keys, columns="features", values="rmse_ms", sort=False)
    first, last = means[FEATURE_SETS[0]], means[FEATURE_SETS[-1]]
    found = pd.DataFrame({"without_ms": first, "with_ms": last})
    found["reduction_percent"] = 100 * (1 - last / first)
    return found.dropna().reset_index()


def conclusions(rmse: pd.DataFrame, unseen: pd.DataFrame) -> dict[str, Any]:
    """Our numbers beside those of the paper."""
    by_model = reductions(rmse, ["family", "model"])
    full = rmse[rmse["features"] == FEATURE_SETS[-1]]
    means = full.pivot_table(index="family", columns="model", values="rmse_ms", sort=False)
    best = means.idxmin(axis=1)
    top = by_model.loc[by_model["reduction_percent"].idxmax()]
    helped = by_model["reduction_percent"] > 0
    result: dict[str, Any] = {
        "paper": PAPER,
        "best reduction": {
            "model": top["model"], "family": top["family"],
            "percent": round(float(top["reduction_percent"]), 1),
        },
        "family and model pairs whose RMSE falls": f"{helped.sum()} of {len(helped)}",
        "best model": {str(k): str(v) for k, v in best.items()},
        "reduction in percent": {
            f"{r.family}, {r.model}": round(float(r.reduction_percent), 1)
            for r in by_model.itertuples()
        },
    }  # fmt: skip
    if len(unseen):
        left_out = reductions(unseen, ["family", "model"])
        result["unseen RMSE reduction in percent"] = {
            f"{r.family}, {r.model}": round(float(r.reduction_percent), 1)
            for r in left_out.itertuples()
        }
    return result


def frame_of(ledger: Ledger) -> pd.DataFrame:
    """The lines of a ledger with numbers as numbers."""
    frame = pd.DataFrame(ledger.rows, columns=list(ledger.columns))
    return frame.astype({"rmse_ms": float, "mape": float})


def plots(rmse: pd.DataFrame, unseen: pd.DataFrame, folder: Path, suffix: str) -> None:
    """The reductions as bars, for rows held out at random and for devices left out."""
    for name, table, title in (
        ("layers-rmse", rmse, "RMSE that PreNeT's features save, rows held out at random"),
        ("layers-unseen", unseen, "RMSE that PreNeT's features save, devices left out"),
    ):
        if not len(table):
            continue
        found = reductions(table, ["family", "model"])
        wide = found.pivot_table(
            index="family", columns="model", values="reduction_percent", sort=False
        )
        series = {str(model): wide[model].clip(lower=-100.0).tolist() for model in wide}
        if name == "layers-unseen":
            paper = PAPER["unseen RMSE reduction in percent"]
            series["paper (mlp)"] = [float(paper.get(f, np.nan)) for f in wide.index]
        bars(
            folder / f"{name}{suffix}.png",
            [str(family) for family in wide.index],
            series,
            title=title,
            unit="percent of the RMSE without them (bars end at -100)",
        )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3000, help="rows per family")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--records", type=Path, help="folder with records of our own")
    parser.add_argument("--quick", action="store_true", help="few rows and families, a smoke test")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result files")
    args = parser.parse_args()
    studied = ("dense", "attention") if args.quick else STUDIED
    rows, suffix = (120, "-quick") if args.quick else (args.rows, "")
    data = find_data_dir(None)
    operators = load_operators(data)
    tables = {family: operator_table(operators, family, rows) for family in studied}
    own = record_tables(read_layers(args.records or RECORDS))
    own = {name: table.head(rows) for name, table in own.items() if len(table) > FEWEST_ROWS}
    tables |= dict(list(own.items())[:1]) if args.quick else own
    errors = ("train_rows", "test_rows", "rmse_ms", "mape")
    rmse = Ledger(
        args.out / f"layers-rmse{suffix}.csv", ("family", "model", "features", "seed"), errors
    )
    unseen = Ledger(
        args.out / f"layers-unseen{suffix}.csv", ("family", "device", "model", "features"), errors
    )
    random_part(tables, args.seeds, rmse)
    unseen_part(tables, unseen)
    models = Ledger(args.out / f"layers-models{suffix}.csv", MODEL_KEYS, MODEL_COLUMNS)
    whole = end_to_end(data, operators, rows, models, quick=args.quick)
    found = conclusions(frame_of(rmse), frame_of(unseen))
    write_json(args.out / f"layers{suffix}.json", {**found, "end to end": whole, **facts()})
    plots(frame_of(rmse), frame_of(unseen), args.out, suffix)
    for name, value in found.items():
        print(f"{name}: {value}")
    print(whole)


if __name__ == "__main__":
    main()
