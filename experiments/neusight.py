"""NeuSight's protocol: its training devices, its workloads on the devices it did not train on.

    python -m experiments.neusight [--seeds 3] [--quick]

Fits on rows and single operators of P100, P4, T4, V100 and A100-40GB only and predicts NeuSight's
end-to-end workloads on H100 and A100-80GB, row by row beside what four published predictors said
(`neusight_peer_predictions.csv` of the data; Lee, Phanishayee, Mahajan, ASPLOS 2025). No measured
row is written, only figures over groups of rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from experiments.ensemble import mean_of
from experiments.shared import markdown
from experiments.shared.command import QUICK, Option, Options, command
from experiments.shared.networks import operators_of
from experiments.shared.results import Result, folder_of, provenance, write_result

if TYPE_CHECKING:
    from prenet_gnn.training.rows import Rows

PEERS = "neusight_peer_predictions.csv"
KEY = ["gpu", "task", "model", "seq_len", "batch_size", "compiled"]
# Fewer rows than the whole collection: as many steps as the shipped weights take, by more rounds.
CHANGES = ("train.epochs=30", "train.rows_per_epoch=3000")


def predict(rows: Rows, seed: int, changes: tuple[str, ...], folder: Path) -> pd.DataFrame:
    """Test rows with the prediction of a network that has seen NeuSight's training devices only."""
    from prenet_gnn.data.splits import neusight
    from prenet_gnn.data.tables import device_name
    from prenet_gnn.network.paired import general_config
    from prenet_gnn.training.config import load_config
    from prenet_gnn.training.fit import Material, Watch, fit, predict_rows

    split = neusight(rows.frame)
    settings = load_config(None, list(changes), seed)
    devices = set(rows.frame["device"].iloc[split.train])
    operators = operators_of(lambda gpu: device_name(gpu) in devices)
    watch = Watch(folder / f"seed-{seed}", lambda epoch, figures: print(epoch, figures, flush=True))
    material = Material(rows, split.train, operators=operators)
    fitted = fit(material, general_config(settings.model), settings.train, watch=watch)
    (test,) = split.test.values()
    found = rows.frame.iloc[test].reset_index(drop=True)
    return found.assign(task=found["mode"], ours_s=predict_rows(fitted, rows, test))


def beside_peers(table: pd.DataFrame, peers: pd.DataFrame) -> pd.DataFrame:
    """Relative errors of all predictors, one row for each workload and method."""
    peers = peers.assign(
        compiled=peers["option"] == "fusion", seq_len=peers["seq_len"].fillna(0).astype(int)
    )
    single = peers["option"].isna() | (peers["option"] == "fusion")
    joined = table.merge(peers[single], on=KEY, how="left", validate="one_to_many")
    theirs = joined.dropna(subset=["method"])
    long = pd.concat(
        [
            table.assign(method="ours", predicted_s=table["ours_s"]),
            theirs.assign(predicted_s=theirs["pred_e2e_ms"] / 1e3),
        ]
    )
    known = set(map(tuple, theirs[KEY].drop_duplicates().to_numpy().tolist()))
    shared = [tuple(row) in known for row in long[KEY].to_numpy().tolist()]
    long["ratio"] = long["predicted_s"] / long["step_s"]
    return long[shared]


def summary(long: pd.DataFrame) -> list[dict[str, Any]]:
    """MAPE, median and bias by device, task and method, on the rows that every method predicts."""
    rows = []
    for (gpu, task, method), part in long.groupby(["gpu", "task", "method"]):
        error = (part["ratio"] - 1.0).abs()
        rows.append(
            {
                "gpu": gpu,
                "task": task,
                "method": method,
                "rows": len(part),
                "mape": round(float(error.mean()), 4),
                "median": round(float(error.median()), 4),
                "bias": round(float((part["ratio"] - 1.0).mean()), 4),
            }
        )
    return rows


def table(result: Result) -> str:
    """Errors of the mean of the networks beside those of other predictors."""
    columns = {
        "device": "{gpu}",
        "task": "{task}",
        "method": "{method}",
        "rows": "{rows}",
        "MAPE": "{mape:.1%}",
        "median": "{median:.1%}",
        "bias": "{bias:+.1%}",
    }
    return markdown.signed(result, markdown.table(result["ensemble"], columns))


@command(
    Option("--seeds", type=int, default=3),
    QUICK,
    Option("--folder", type=Path, help="keeps the state of the fits"),
)
def main(options: Options) -> None:
    """Fits once for every seed and compares."""
    from prenet_gnn.data.tables import find_data_dir
    from prenet_gnn.training.prepare import prepare_rows

    rows, out = prepare_rows(None), folder_of(options.quick)
    peers = pd.read_csv(find_data_dir(None) / PEERS)
    changes, seeds = CHANGES, options.seeds
    if options.quick:
        changes, seeds = ("train.epochs=1", "train.rows_per_epoch=100"), 1
    folder = options.folder or out / "neusight"
    tables = [predict(rows, seed, changes, folder) for seed in range(seeds)]
    runs = [summary(beside_peers(found, peers)) for found in tables]
    together = tables[0].assign(ours_s=mean_of([found["ours_s"] for found in tables]))
    result = {
        **provenance("python -m experiments.neusight", seeds=seeds, changes=list(changes)),
        "ensemble": summary(beside_peers(together, peers)),
        "single": [[row for row in run if row["method"] == "ours"] for run in runs],
    }
    print(table(result))
    write_result("neusight", result, out)


if __name__ == "__main__":
    main()
