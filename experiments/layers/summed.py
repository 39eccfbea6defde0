"""PreNeT's way to a whole model: one regressor per layer family, predictions added up."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from experiments.layers.tables import device_columns, operator_table
from prenet_gnn.evaluation.baselines.pooling import columns_of
from prenet_gnn.evaluation.baselines.regressors import make_regressor
from tracing.costs.vocab import KINDS

if TYPE_CHECKING:
    from prenet_gnn.catalogue.devices import Hardware
    from prenet_gnn.encoding.encode import Encoded
    from prenet_gnn.workload.workload import Workload

# Families of measured operators and the kinds of calls that they stand for. Kinds that no source
# measured alone (norms of batches, pools, copies) are taken as elementwise operators of their size.
KINDS_OF = {
    "convolution": ("conv", "conv_transpose"),
    "dense": ("linear", "rnn"),
    "attention": ("matmul", "attention"),
    "layer norm": ("layer_norm", "group_norm", "rms_norm"),
    "softmax": ("softmax", "loss"),
}
OTHERS = "elementwise"
SIZES = ("batch", "rows", "cols", "inner", "kernel")


class LayerSum:
    """Adds up what one regressor per family says about every call.

    The measured operators ran forward only, in float32. The backward pass of a call takes its
    forward time times the ratio of its arithmetic (or of its traffic where it has none).
    """

    def __init__(self, operators: pd.DataFrame, held_out: Collection[str], at_most: int) -> None:
        """Builds the tables of all families without the devices that are held out."""
        known = operators[~operators["device"].isin(set(held_out))]
        self._tables = {f: operator_table(known, f, at_most) for f in (*KINDS_OF, OTHERS)}

    def fit(self, feature_set: str, regressor: str = "xgboost", seed: int = 0) -> LayerSum:
        """Fits one regressor per family to the logarithm of the time."""
        self._models, self._columns = {}, {}
        for family, table in self._tables.items():
            columns = [c for c in columns_of(table, feature_set) if _is_shared(c)]
            model = make_regressor(regressor, seed)
            model.fit(table[columns].to_numpy(float), np.log(table["seconds"].to_numpy(float)))
            self._models[family], self._columns[family] = model, columns
        return self

    def predict(self, runs: Sequence[tuple[Encoded, Workload, Hardware]]) -> np.ndarray:
        """Seconds of whole graphs, `(len(runs),)`."""
        table = pd.concat([calls_of(*run, i) for i, run in enumerate(runs)], ignore_index=True)
        seconds = np.zeros(len(table))
        for family, model in self._models.items():
            mask = (table["family"] == family).to_numpy()
            if mask.any():
                x = table.loc[mask, self._columns[family]].to_numpy(float)
                seconds[mask] = np.exp(model.predict(x).astype(float))
        table["seconds"] = seconds * table["passes"]
        total = table.groupby("run")["seconds"].sum().reindex(range(len(runs)), fill_value=1e-6)
        return total.to_numpy(float)


def _is_shared(column: str) -> bool:
    """Columns that calls of a graph have too."""
    return column.startswith(("size_", "device_", "flops_", "bytes_total", "time_")) and column != (
        "size_stride"
    )


def calls_of(encoded: Encoded, workload: Workload, hardware: Hardware, run: int) -> pd.DataFrame:
    """The calls of a graph with the columns of `experiments.layers.tables`."""
    flops, moved = encoded.pair("flops"), encoded.pair("bytes")
    table = pd.DataFrame({"run": np.full(len(flops), run)})
    for name in SIZES:
        table[f"size_{name}"] = 2.0 ** (8.0 * encoded.number(f"log_{name}")) - 1
    specs = device_columns(hardware, workload.precision)
    for name, value in specs.items():
        table[name] = value
    table["flops_forward"], table["bytes_total"] = flops[:, 0], moved[:, 0]
    table["time_compute"] = flops[:, 0] / specs["device_flops_per_s"]
    table["time_memory"] = moved[:, 0] / hardware.memory_bytes_per_s
    table["time_roofline"] = np.maximum(table["time_compute"], table["time_memory"])
    family_of = {kind: family for family, kinds_ in KINDS_OF.items() for kind in kinds_}
    table["family"] = [family_of.get(KINDS[kind], OTHERS) for kind in encoded.kinds]
    back = float("backward" in workload.phases)
    needed = np.where(flops[:, :1] > 0, flops, moved)
    ratio = needed[:, 1] / np.maximum(needed[:, 0], 1.0)
    table["passes"] = encoded.counts * (1.0 + back * ratio.clip(0.0, 4.0))
    return table
