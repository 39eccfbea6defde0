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
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from experiments.shared import markdown
from experiments.shared.command import Options, command
from experiments.shared.graphs import cached_graph
from experiments.shared.results import Result, plain, provenance, write_result
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


def rows(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Predicted over measured time of every row, with the parts of the answer."""
    predictor = load_predictor()
    chosen = frame[frame["n_gpus"] == DEVICES].copy()
    chosen["key"] = graph_requests(chosen)
    single = frame[(frame["n_gpus"] == 1) & (frame["mode"] == "train")]
    for key, part in chosen.groupby("key"):
        whole = cached_graph(key)
        for row in part.itertuples():
            found = KIND.search(row.source_file)
            if found is None:
                continue
            node = Node(found[1], int(found[2] or 1))
            size = int(row.batch_size) // (DEVICES if node.kind == "dp" else 1)
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
            alone = float(measured.median()) if len(measured) else np.nan
            exchange = node.exchange(graph, p, row.device)
            yield {
                "method": NAMES[node.kind],
                "ratio": (node.ideal(p.seconds) + exchange) / row.step_s,
                "ratio_no_communication": node.ideal(p.seconds) / row.step_s,
                "ratio_parallel": (node.ideal(alone) + exchange) / row.step_s,
            }


@dataclass(frozen=True, slots=True)
class Node:
    """A way to share work among the devices of a node.

    Attributes:
        kind: `dp`, `pp` or `tp`.
        micro: Micro-batches of a pipeline.
    """

    kind: str
    micro: int = 1

    def ideal(self, seconds: float) -> float:
        """Time of the node if devices exchanged data in no time."""
        if self.kind == "dp":
            return seconds
        # Tensor parallel is not modelled: the figure is that of perfect division.
        if self.kind == "tp":
            return seconds / DEVICES
        return pipeline_s(seconds, DEVICES, self.micro)

    def exchange(self, graph: OpGraph, p: Prediction, device: str) -> float:
        """Time that the exchange of data adds."""
        if self.kind != "dp":
            return 0.0
        return data_parallel(graph, p, get_hardware(device), DEVICES).exposed_s


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """Errors by method."""
    lines = []
    for method, part in found.groupby("method"):
        error = part["ratio"] - 1
        parallel = part["ratio_parallel"].dropna() - 1
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
    return pd.DataFrame(lines)


def table(result: Result) -> str:
    """Errors by method."""
    columns = {
        "method": "{method}",
        "rows": "{rows}",
        "MAPE": "{mape:.1%}",
        "worst": "{worst_ape:.1%}",
        "with one device measured": "{rows_single_measured}",
        "MAPE of the parallel part": lambda row: (
            "-" if row["mape_parallel_part"] is None else f"{row['mape_parallel_part']:.1%}"
        ),
    }
    return markdown.table(result["rows"], columns)


@command()
def main(_: Options) -> None:
    """Prints and saves the table."""
    found = summary(pd.DataFrame(list(rows(read_measurements(find_data_dir(None))))))
    note = (
        "Tensor parallel is not modelled: perfect division by 4 stands for it. The weights have "
        "seen single-device rows of these models; no row of several devices is fitted."
    )
    lines = [plain(line) for line in found.to_dict("records")]
    result = {**provenance(devices=DEVICES), "note": note, "rows": lines}
    print(table(result))
    path = write_result("multi_gpu", result)
    found.round(4).to_csv(path.with_suffix(".csv"), index=False)


if __name__ == "__main__":
    main()
