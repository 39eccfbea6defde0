"""How far are the shipped weights from training runs that others published, system by system?

    python -m experiments.published [--write] [--quick]

Predicts the runs on one GPU of `measurements_lambda.csv.gz`: ResNet-50 and BERT with a head for
question answering, on known hosts and software; no network is fitted to them. Devices that the
catalogue lacks are left out. Repeats of one device fill the table, so errors are also averaged with
each device, model and number format counted once. No measured row is written, only figures over
three runs or more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from experiments.shared import markdown
from experiments.shared.command import QUICK, WEIGHTS, WRITE, Options, command
from experiments.shared.results import Result, folder_of, provenance, write_result

if TYPE_CHECKING:
    from prenet_gnn.predictor.predictor import Predictor
    from prenet_gnn.workload.workload import Workload

FEWEST_RUNS = 3
QUICK_RUNS = 12
ONCE = ["device", "work"]


def single_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """Runs on one GPU that the catalogue has, with the graph, work and kind of card of each."""
    from prenet_gnn.data.keys import graph_requests

    runs = frame[(frame["n_gpus"] == 1) & (frame["device"] != "")].copy()
    runs["key"] = graph_requests(runs)
    runs["work"] = runs["model"].str.partition("@")[0] + " " + runs["precision"]
    runs["card"] = runs["device"].map(card_of)
    return runs


def card_of(device: str) -> str:
    """The chip of a data-centre card, which has HBM; all other cards are one kind."""
    from prenet_gnn.catalogue.devices import get_hardware
    from prenet_gnn.data.splits import chip_name

    stacked = get_hardware(device).memory_type.startswith("HBM")
    return chip_name(device) if stacked else "other cards"


def predicted(runs: pd.DataFrame, predictor: Predictor) -> pd.DataFrame:
    """The runs with `ratio` (predicted over measured), `error`, and `held` by the 90% interval."""
    from experiments.shared.graphs import cached_graph

    parts = []
    for (key, batch_size), part in runs.groupby(["key", "batch_size"]):
        answers = predictor.predict_many(
            cached_graph(key).with_batch_size(int(batch_size)),
            list(part["device"]),
            [workload_of_run(row) for row in part.itertuples()],
        )
        low, high = [a.low_s for a in answers], [a.high_s for a in answers]
        ratio = [a.seconds for a in answers] / part["step_s"]
        held = (part["step_s"] >= low) & (part["step_s"] <= high)
        parts.append(part.assign(ratio=ratio, error=(ratio - 1).abs(), held=held))
    return pd.concat(parts, ignore_index=True)


def workload_of_run(row: Any) -> Workload:
    """The workload of one row of `read_published`, with the optimizer that ran."""
    from prenet_gnn.training.rows import workload_of

    return replace(workload_of(row), optimizer=row.optimizer)


def figures(part: pd.DataFrame) -> dict[str, Any]:
    """Median of predicted over measured, mean error, and coverage of the 90% interval."""
    return {
        "runs": len(part),
        "ratio": round(float(part["ratio"].median()), 4),
        "mape": round(float(part["error"].mean()), 4),
        "coverage": round(float(part["held"].mean()), 4),
    }


def counted_once(found: pd.DataFrame) -> pd.DataFrame:
    """One row for each device, model and number format: the means of its runs, its median ratio."""
    groups = found.groupby(ONCE)
    return groups.agg(
        ratio=("ratio", "median"), error=("error", "mean"), held=("held", "mean")
    ).reset_index()


def by(found: pd.DataFrame, column: str) -> list[dict[str, Any]]:
    """Figures of every group of three runs or more; smaller ones are one group, if it has three."""
    sizes = found.groupby(column)[column].transform("size")
    names = found[column].where(sizes >= FEWEST_RUNS, "few runs each")
    groups = found.groupby(names)
    return [{"group": name, **figures(part)} for name, part in groups if len(part) >= FEWEST_RUNS]


def summary(found: pd.DataFrame) -> dict[str, Any]:
    """All runs, each device, model and format counted once, and the runs by what they have."""
    overall = [
        {"group": "all runs", **figures(found)},
        {"group": "each counted once", **figures(counted_once(found))},
    ]
    groups = {f"by_{name}": by(found, name) for name in ("card", "work", "device")}
    return {"systems": found["system_id"].nunique(), "overall": overall, **groups}


COLUMNS: dict[str, markdown.Cell] = {
    "runs": "{runs}",
    "predicted / measured": "{ratio:.2f}",
    "MAPE": "{mape:.1%}",
    "in 90% interval": "{coverage:.0%}",
}


def table(result: Result) -> str:
    """All runs and those of each kind of card, and in words the ratios of each work."""
    works = ", ".join("{group} {ratio:.2f}".format_map(row) for row in result["by_work"])
    lines = [*result["overall"], *result["by_card"]]
    text = markdown.table(lines, {"group": "{group}", **COLUMNS})
    return markdown.signed(result, text, f"By work: {works}.")


def details(result: Result) -> str:
    """Every work and every device."""
    return "\n\n".join(
        markdown.table(result[f"by_{name}"], {name: "{group}", **COLUMNS})
        for name in ("work", "device")
    )


@command(WEIGHTS, WRITE, QUICK)
def main(options: Options) -> None:
    """Predicts the runs, prints the tables and, with --write, keeps the result."""
    from prenet_gnn.data.graphs import build_cache
    from prenet_gnn.data.published import read_published
    from prenet_gnn.data.tables import find_data_dir
    from prenet_gnn.predictor.loading import load_predictor

    folder = find_data_dir(None)
    runs = single_runs(read_published(folder))
    if options.quick:
        runs = runs[runs["library"] == "torchvision"].head(QUICK_RUNS)
    build_cache(runs["key"], workers=0, data_dir=folder)
    found = predicted(runs, load_predictor(options.weights))
    result = {**provenance("python -m experiments.published"), **summary(found)}
    print(details(result), table(result), sep="\n\n")
    if options.write or options.quick:
        write_result("published", result, folder_of(options.quick))


if __name__ == "__main__":
    main()
