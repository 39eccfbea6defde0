"""NeuSight's protocol: its training devices, its workloads on the devices it did not train on.

    python -m experiments.neusight [--seeds 3] [--quick]

Fits on rows and single operators of P100, P4, T4, V100 and A100-40GB only and predicts NeuSight's
end-to-end workloads on H100 and A100-80GB, row by row beside what four published predictors said
(`neusight_peer_predictions.csv` of the data; Lee, Phanishayee, Mahajan, ASPLOS 2025). No measured
row is written, only figures over groups of rows.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from experiments.provenance import RESULTS, provenance, write_result
from prenet_gnn.training.config import SHIPPED

if TYPE_CHECKING:
    from prenet_gnn.training.rows import Rows

PEERS = "neusight_peer_predictions.csv"
KEY = ["gpu", "task", "model", "seq_len", "batch_size", "compiled"]
# Fewer rows than the whole collection: as many steps as the shipped weights take, by more rounds.
CHANGES = ("train.epochs=30", "train.rows_per_epoch=3000")


def operators_of(devices: set[str]) -> Rows:
    """Operators timed alone on some devices."""
    from prenet_gnn.training.prepare import prepare_operators

    operators = prepare_operators(None)
    return operators.only(np.flatnonzero(operators.frame["device"].isin(devices).to_numpy()))


def predict(rows: Rows, seed: int, changes: tuple[str, ...], folder: Path) -> pd.DataFrame:
    """Test rows with the prediction of a network that has seen NeuSight's training devices only."""
    from prenet_gnn.data.splits import neusight
    from prenet_gnn.training.config import load_config
    from prenet_gnn.training.fit import fit, predict_rows

    split = neusight(rows.frame)
    settings = load_config(SHIPPED, list(changes), seed)
    devices = set(rows.frame["device"].iloc[split.train])
    fitted = fit(
        rows,
        split.train,
        np.zeros(0, dtype=np.int64),
        settings.general(),
        settings.train,
        operators=operators_of(devices),
        folder=folder / f"seed-{seed}",
        report=lambda epoch, figures: print(epoch, figures, flush=True),
    )
    (test,) = split.test.values()
    table = rows.frame.iloc[test].reset_index(drop=True)
    table["task"] = table["mode"]
    return table.assign(ours_s=predict_rows(fitted, rows, test))


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


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one short fit, a smoke test")
    parser.add_argument("--folder", type=Path, default=RESULTS / "neusight")
    args = parser.parse_args()
    from prenet_gnn.data.tables import find_data_dir
    from prenet_gnn.training.prepare import prepare_rows

    rows = prepare_rows(None)
    peers = pd.read_csv(find_data_dir(None) / PEERS)
    changes = ("train.epochs=1", "train.rows_per_epoch=100") if args.quick else CHANGES
    tables = [
        predict(rows, seed, changes, args.folder) for seed in range(1 if args.quick else args.seeds)
    ]
    runs = [summary(beside_peers(table, peers)) for table in tables]
    logs = np.mean([np.log(table["ours_s"]) for table in tables], axis=0)
    together = tables[0].assign(ours_s=np.exp(logs))
    rows_of = summary(beside_peers(together, peers))
    for row in rows_of:
        print(f"{row['gpu']:<26}{row['task']:<7}{row['method']:<12}{row['rows']:>4}"
              f"{row['mape']:>8.1%}{row['median']:>8.1%}{row['bias']:>+8.1%}")  # fmt: skip
    if args.quick:
        return
    write_result(
        "neusight",
        {
            **provenance("python -m experiments.neusight", seeds=args.seeds, changes=list(changes)),
            "ensemble": rows_of,
            "single": [[row for row in run if row["method"] == "ours"] for run in runs],
        },
    )


if __name__ == "__main__":
    main()
