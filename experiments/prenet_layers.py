"""Do PreNeT's conclusions about single layers hold on other measurements?

    python -m experiments.prenet_layers [--rows 3000] [--records FILE] [--quick]

Three parts, as in the paper (Pourali, Boukani, Khazaei, ICPE 2025), each resumable:
`layers-rmse.csv`, RMSE of its models x feature sets per layer family (its Tables 4 and 5);
`layers-unseen.csv`, RMSE on devices that were left out; `layers-models.csv`, VGG-16 and BERT end to
end beside the paper's own figures. The layers are the operator rows of the collected measurements
and our own sweeps in `records/`. `layers.json` and the plots sum up.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from experiments.layers.paper import end_to_end
from experiments.layers.records import RECORDS, read_layers, record_tables
from experiments.layers.tables import FAMILIES, feature_columns, load_operators, operator_table
from experiments.shared import markdown
from experiments.shared.command import OUT, QUICK, SEEDS, Option, Options, command
from experiments.shared.ledger import Ledger, Row
from experiments.shared.plots import bars
from experiments.shared.results import Result, folder_of, provenance, write_result
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
REDUCTION, UNSEEN = "reduction in percent", "unseen RMSE reduction in percent"
# What the paper says (facts from its text, Tables 4 and 5, its figures and notebooks).
PAPER = {
    "best reduction": {"model": "boosting", "family": "attention", "percent": 72.6},
    "best model": {
        "attention": "mlp", "embedding": "mlp", "recurrent": "mlp",
        "convolution": "forest", "dense": "forest",
    },
    UNSEEN: {
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


def reductions(runs: list[Row]) -> pd.DataFrame:
    """By how many percent PreNeT's features reduce the RMSE, by family and model."""
    if not runs:
        return pd.DataFrame(columns=["family", "model", "percent"])
    means = pd.DataFrame(runs).pivot_table(
        index=["family", "model"], columns="features", values="rmse_ms", sort=False
    )
    saved = 100 * (1 - means[FEATURE_SETS[-1]] / means[FEATURE_SETS[0]])
    return saved.dropna().rename("percent").reset_index()


def named(found: pd.DataFrame) -> dict[str, float]:
    """The reductions by `family, model`."""
    return {f"{r.family}, {r.model}": round(float(r.percent), 1) for r in found.itertuples()}


def conclusions(rmse: list[Row], unseen: list[Row]) -> Result:
    """Our numbers beside those of the paper."""
    by_model = reductions(rmse)
    full = pd.DataFrame([row for row in rmse if row["features"] == FEATURE_SETS[-1]])
    best = full.pivot_table(index="family", columns="model", values="rmse_ms", sort=False)
    top = by_model.loc[by_model["percent"].idxmax()]
    helped = by_model["percent"] > 0
    percent = round(float(top["percent"]), 1)
    result: Result = {
        "paper": PAPER,
        "best reduction": {"model": top["model"], "family": top["family"], "percent": percent},
        "family and model pairs whose RMSE falls": f"{helped.sum()} of {len(helped)}",
        "best model": {str(k): str(v) for k, v in best.idxmin(axis=1).items()},
        REDUCTION: named(by_model),
    }
    return result | ({UNSEEN: named(reductions(unseen))} if unseen else {})


def table(result: Result) -> str:
    """What PreNeT's features save of the error on single layers, and whole models."""
    top, paper = (
        "{percent}% ({model}, {family})".format_map(found)
        for found in (result["best reduction"], result["paper"]["best reduction"])
    )
    whole = result["end to end"]
    errors = ", ".join(
        f"{name.removesuffix('_error_percent').replace('_', ' ')} {value:.0f}%"
        for name, value in whole["mean error in percent"].items()
    )
    return markdown.signed(
        result,
        "Pairs of family and model whose RMSE falls: "
        f"{result['family and model pairs whose RMSE falls']}. Largest saving: {top}; in the paper "
        f"{paper}.",
        f"Whole models, {whole['runs']} epochs of VGG-16 and BERT that the paper measured, mean "
        f"error: {errors}.",
    )


def plots(rmse: list[Row], unseen: list[Row], folder: Path) -> None:
    """The reductions as bars, for rows held out at random and for devices left out."""
    for name, runs, title in (
        ("layers-rmse", rmse, "RMSE that PreNeT's features save, rows held out at random"),
        ("layers-unseen", unseen, "RMSE that PreNeT's features save, devices left out"),
    ):
        if not runs:
            continue
        wide = reductions(runs).pivot_table(
            index="family", columns="model", values="percent", sort=False
        )
        series = {str(model): wide[model].clip(lower=-100.0).tolist() for model in wide}
        if name == "layers-unseen":
            series["paper (mlp)"] = [float(PAPER[UNSEEN].get(f, np.nan)) for f in wide.index]
        bars(
            folder / f"{name}.png",
            [str(family) for family in wide.index],
            series,
            title=title,
            unit="percent of the RMSE without them (bars end at -100)",
        )


@command(
    Option("--rows", type=int, default=3000, help="rows per family"),
    SEEDS,
    Option("--records", type=Path, default=RECORDS, help="folder with records of our own"),
    QUICK,
    OUT,
)
def main(options: Options) -> None:
    """Fits PreNeT's models to every family and writes what they say."""
    studied = ("dense", "attention") if options.quick else STUDIED
    rows, out = 120 if options.quick else options.rows, options.out or folder_of(options.quick)
    data = find_data_dir(None)
    operators = load_operators(data)
    tables = {family: operator_table(operators, family, rows) for family in studied}
    own = record_tables(read_layers(options.records))
    own = {name: found.head(rows) for name, found in own.items() if len(found) > FEWEST_ROWS}
    tables |= dict(list(own.items())[:1]) if options.quick else own
    rmse, unseen, models = (
        Ledger(out / f"layers-{name}.csv") for name in ("rmse", "unseen", "models")
    )
    random_part(tables, options.seeds, rmse)
    unseen_part(tables, unseen)
    whole = end_to_end(data, operators, rows, models, quick=options.quick)
    result = {**conclusions(rmse.rows, unseen.rows), "end to end": whole, **provenance()}
    write_result("layers", result, out)
    plots(rmse.rows, unseen.rows, out)
    print(table(result))


if __name__ == "__main__":
    main()
