"""Does the predictor put devices into the order in which they were measured?

    python -m experiments.device_ranking

Rows of one model that were measured in the same way on several devices are put into order by
predicted throughput. Beside it stand the orders by peak arithmetic and by memory bandwidth.
`regret` is how much slower the device is that is predicted to be the fastest than the one that was.
The weights have seen these rows, so this checks the recommendation, not unseen devices; those are
in `experiments.accuracy`. Only figures over groups are written, no measured row.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd

from experiments.shared import markdown
from experiments.shared.command import SEED, Option, Options, command
from experiments.shared.graphs import cached_graph
from experiments.shared.results import Result, provenance, write_result
from prenet_gnn import load_predictor
from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.data.keys import graph_requests
from prenet_gnn.data.tables import find_data_dir, read_measurements, training_rows
from prenet_gnn.errors import PreNetError
from prenet_gnn.training.rows import workload_of
from tracing import TraceError

SAME = ["library", "model", "mode", "number_format", "batch_size", "image_size", "seq_len", "timed"]
SMALLEST_GROUP = 4
ORDERS = ("predicted", "peak arithmetic", "memory bandwidth")


def groups(frame: pd.DataFrame, models: int, seed: int) -> pd.DataFrame:
    """Rows of models that were measured in one way on several devices; one row per device."""
    rows = training_rows(frame).copy()
    # What a card does with float32 by default is TF32 since Ampere
    rows["number_format"] = rows["precision"].replace({"tf32": "fp32"})
    counts = rows.groupby(SAME)["device"].transform("nunique")
    rows = rows[counts >= SMALLEST_GROUP].copy()
    names = sorted(rows["model"].unique())
    drawn = np.random.default_rng(seed).choice(names, min(models, len(names)), replace=False)
    rows = rows[rows["model"].isin(set(drawn))].copy()
    rows["key"] = graph_requests(rows)
    return rows.sort_values("torch_version").drop_duplicates([*SAME, "device"], keep="last")


def predicted(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with predicted seconds; rows whose graph is missing are left out and counted."""
    predictor = load_predictor()
    parts, missing = [], 0
    for (key, batch_size), part in rows.groupby(["key", "batch_size"]):
        try:
            answers = predictor.predict_many(
                cached_graph(key).with_batch_size(int(batch_size)),
                list(part["device"]),
                [workload_of(row) for row in part.itertuples()],
            )
        except (PreNetError, TraceError):
            missing += len(part)
            continue
        parts.append(part.assign(predicted_s=[answer.seconds for answer in answers]))
    print(f"{missing} rows left out: their graph is not in the cache")
    return pd.concat(parts, ignore_index=True)


def judge(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Figures by mode and way to put devices into order."""
    devices = {name: get_hardware(name) for name in rows["device"].unique()}
    times = {
        "predicted": rows["predicted_s"],
        "peak arithmetic": rows.apply(
            lambda row: 1 / devices[row["device"]].peak_flops_per_s(row["precision"]), axis=1
        ),
        "memory bandwidth": rows["device"].map(lambda d: 1 / devices[d].memory_bytes_per_s),
    }
    found = []
    for mode, part in rows.groupby("mode"):
        members = [g for _, g in part.groupby(SAME) if len(g) >= SMALLEST_GROUP]
        for order in ORDERS:
            figures = [_figures(g["step_s"], times[order][g.index]) for g in members]
            table = pd.DataFrame(figures)
            found.append(
                {
                    "mode": mode,
                    "order": order,
                    "groups": len(members),
                    "models": part["model"].nunique(),
                    "devices": part["device"].nunique(),
                    "spearman_mean": float(table["spearman"].mean()),
                    "spearman_p10": float(table["spearman"].quantile(0.1)),
                    "pairs_right": float(table["pairs"].mean()),
                    "regret_mean": float(table["regret"].mean()),
                }
            )
    return found


def _figures(measured: pd.Series, guessed: pd.Series) -> dict[str, float]:
    pairs = [
        (measured.iat[a] < measured.iat[b]) == (guessed.iat[a] < guessed.iat[b])
        for a, b in itertools.combinations(range(len(measured)), 2)
    ]
    return {
        "spearman": float(measured.rank().corr(guessed.rank())),
        "pairs": float(np.mean(pairs)),
        "regret": float(measured[guessed.idxmin()] / measured.min() - 1),
    }


def table(result: Result) -> str:
    """Figures by mode and way to put devices into order."""
    columns = {
        "mode": "{mode}",
        "order by": "{order}",
        "groups": "{groups}",
        "devices": "{devices}",
        "Spearman, mean": "{spearman_mean:.3f}",
        "pairs in order": "{pairs_right:.1%}",
        "regret, mean": "{regret_mean:.1%}",
    }
    return markdown.table(result["rows"], columns)


@command(
    Option("--models", type=int, default=1000, help="at most so many, drawn"),
    SEED,
)
def main(options: Options) -> None:
    """Prints and saves the table."""
    frame = read_measurements(find_data_dir(None))
    result = {
        **provenance(seed=options.seed, smallest_group=SMALLEST_GROUP),
        "note": "the shipped weights have seen these rows",
        "rows": judge(predicted(groups(frame, options.models, options.seed))),
    }
    print(table(result))
    path = write_result("device_ranking", result)
    pd.DataFrame(result["rows"]).round(4).to_csv(path.with_suffix(".csv"), index=False)


if __name__ == "__main__":
    main()
