"""How far is the outlook on several devices from measured rows on four of them?

    python -m experiments.multi_gpu

The collection has a few rows of language models on 4 GPUs of one node: data parallel, pipeline with
one micro-batch, and tensor parallel. The outlook knows the first two. Two errors are told apart:
that of the whole answer, and that of the parallel part alone, where the time of one device was
measured as well. Only figures over groups are written, no measured row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from experiments.memory_verdict import training_graph
from experiments.provenance import provenance, write_result
from prenet_gnn import load_predictor
from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.data.keys import graph_requests
from prenet_gnn.data.tables import find_data_dir, read_measurements
from prenet_gnn.planning.parallel import data_parallel, pipeline_s
from prenet_gnn.predictor.prediction import Prediction
from prenet_gnn.workload.workload import Workload
from tracing import OpGraph

DEVICES = 4
# Kind of parallelism, with the number of micro-batches of a pipeline, as the file names give it.
KIND = re.compile(r"-(dp|tp|pp)4(?:_(\d+))?\.json$")
NAMES = {"dp": "data parallel", "pp": "pipeline, 1 micro-batch", "tp": "tensor parallel"}
COLUMNS = ("method", "rows", "mape", "worst_ape", "bias", "mape_no_communication",
           "rows_single_measured", "mape_parallel_part")  # fmt: skip


def rows(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Predicted over measured time of every row, with the parts of the answer."""
    predictor = load_predictor()
    chosen = frame[frame["n_gpus"] == DEVICES].copy()
    chosen["key"] = graph_requests(chosen)
    single = frame[(frame["n_gpus"] == 1) & (frame["mode"] == "train")]
    for key, part in chosen.groupby("key"):
        whole = training_graph(key)
        for row in part.itertuples():
            found = KIND.search(row.source_file)
            if found is None:
                continue
            kind = found[1]
            size = int(row.batch_size) // (DEVICES if kind == "dp" else 1)
            graph = whole.with_batch_size(size)
            workload = Workload(
                precision=row.precision,
                optimizer="none",
                framework=row.framework,
                timed=row.timed,
            )
            p = predictor.predict(graph, hardware=row.device, workload=workload)
            measured = single[
                (single["model"] == row.model)
                & (single["device"] == row.device)
                & (single["batch_size"] == size)
                & (single["seq_len"] == row.seq_len)
            ]["step_s"]
            alone = float(measured.median()) if len(measured) else None
            micro = int(found[2] or 1)
            yield {
                "method": NAMES[kind],
                "ratio": _whole(kind, micro, graph, p, row.device) / row.step_s,
                "ratio_no_communication": _ideal(kind, micro, p.seconds) / row.step_s,
                "ratio_parallel": None
                if alone is None
                else _whole(kind, micro, graph, p, row.device, alone) / row.step_s,
            }


def _whole(
    kind: str,
    micro: int,
    graph: OpGraph,
    p: Prediction,
    device: str,
    alone_s: float | None = None,
) -> float:
    """Time of the node; `alone_s` takes the place of the predicted time of one device."""
    seconds = p.seconds if alone_s is None else alone_s
    if kind == "dp":
        return seconds + data_parallel(graph, p, get_hardware(device), DEVICES).exposed_s
    return _ideal(kind, micro, seconds)


def _ideal(kind: str, micro: int, seconds: float) -> float:
    """Time of the node if devices exchanged data in no time."""
    if kind == "dp":
        return seconds
    # Tensor parallel is not modelled: the figure is that of perfect division.
    return seconds / DEVICES if kind == "tp" else pipeline_s(seconds, DEVICES, micro)


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """Errors by method."""
    lines = []
    for method, part in found.groupby("method"):
        error = part["ratio"] - 1
        parallel = part["ratio_parallel"].dropna().astype(float) - 1
        lines.append(
            {
                "method": method,
                "rows": len(part),
                "mape": float(error.abs().mean()),
                "worst_ape": float(error.abs().max()),
                "bias": float(np.log(part["ratio"]).mean()),
                "mape_no_communication": float((part["ratio_no_communication"] - 1).abs().mean()),
                "rows_single_measured": len(parallel),
                "mape_parallel_part": float(parallel.abs().mean()) if len(parallel) else None,
            }
        )
    return pd.DataFrame(lines, columns=COLUMNS)


def main() -> None:
    """Prints and saves the table."""
    found = pd.DataFrame(list(rows(read_measurements(find_data_dir(None)))))
    table = summary(found)
    print(table.to_string(index=False))
    note = (
        "Tensor parallel is not modelled: perfect division by 4 stands for it. The weights have "
        "seen single-device rows of these models; no row of several devices is fitted."
    )
    lines = [
        {name: None if value != value else value for name, value in line.items()}
        for line in table.to_dict("records")
    ]
    values = {
        **provenance("python -m experiments.multi_gpu", devices=DEVICES),
        "note": note,
        "rows": lines,
    }
    path = write_result("multi_gpu", values)
    table.round(4).to_csv(path.with_suffix(".csv"), index=False)


if __name__ == "__main__":
    main()
