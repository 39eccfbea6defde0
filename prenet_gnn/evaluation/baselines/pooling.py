"""Whole graphs as one row of a table, in PreNeT's four nested sets of features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from prenet_gnn.errors import ConfigError
from tracing.costs.vocab import KINDS

if TYPE_CHECKING:
    import pandas as pd

    from prenet_gnn.catalogue.devices import Hardware
    from prenet_gnn.encoding.encode import Encoded
    from prenet_gnn.training.rows import Rows
    from prenet_gnn.workload.workload import Workload

# PreNeT's sets: hyperparameters and device specifications; with arithmetic (computational
# operations); with memory as well; with the time that arithmetic takes at the device's rate too.
FEATURE_SETS = ("Baseline", "CO", "COCM", "COCMCT")
# Which set a column first belongs to, by the head of its name.
_SET_OF_HEAD = {"flops": 1, "bytes": 2, "time": 3}
PRODUCT_KINDS = ("conv", "linear", "matmul", "attention", "rnn")
# Lightest time of a phase of a call, for the roofline of calls without any work.
_TINY = 1e-12


def columns_of(table: pd.DataFrame, feature_set: str) -> list[str]:
    """Columns of `pooled_features` that a set of features uses.

    Raises:
        ConfigError: There is no such set.
    """
    if feature_set not in FEATURE_SETS:
        raise ConfigError(
            f"feature set '{feature_set}' is not known. Allowed: {', '.join(FEATURE_SETS)}."
        )
    level = FEATURE_SETS.index(feature_set)
    names = [str(name) for name in table.columns]
    return [n for n in names if _SET_OF_HEAD.get(n.partition("_")[0], 0) <= level]


def pooled_features(rows: Rows, chosen: Sequence[int] | np.ndarray) -> pd.DataFrame:
    """One line of sums over the graph and of device numbers for each chosen row.

    Columns that begin with `flops_`, `bytes_` and `time_` belong to the larger sets of features;
    see `columns_of`.
    """
    return _table(rows, chosen, pooled_row)


def work_sums(rows: Rows, chosen: Sequence[int] | np.ndarray) -> pd.DataFrame:
    """The columns of the baselines with a formula for each chosen row."""
    return _table(rows, chosen, _work_row)


def _table(
    rows: Rows,
    chosen: Sequence[int] | np.ndarray,
    line: Callable[[Encoded, Workload, Hardware], Mapping[str, Any]],
) -> pd.DataFrame:
    import pandas as pd

    from prenet_gnn.catalogue.devices import get_hardware

    return pd.DataFrame(
        [
            line(
                rows.store.entries[rows.keys[i]],
                rows.workloads[i],
                get_hardware(str(rows.frame.gpu.iat[i])),
            )
            for i in chosen
        ]
    )


def _work_row(encoded: Encoded, workload: Workload, hardware: Hardware) -> dict[str, Any]:
    work = encoded.counts @ encoded.work
    back = float("backward" in workload.phases)
    return {
        "device": hardware.name,
        "forward_flops": work[0],
        "backward_flops": work[1] * back,
        "bytes": work[2] + work[3] * back,
        "peak_flops_per_s": hardware.peak_flops_per_s(workload.precision),
        "memory_bytes_per_s": hardware.memory_bytes_per_s,
    }


def pooled_row(encoded: Encoded, workload: Workload, hardware: Hardware) -> dict[str, float]:
    """The columns of one graph, run and device."""
    from prenet_gnn.encoding.batch import PHASE_INDEX, phases_vector, step_vector
    from prenet_gnn.encoding.device import DEVICE, RUN, device_vector, run_vector

    back = float("backward" in workload.phases)
    counts, work = encoded.counts, encoded.work
    kinds = encoded.numbers[:, : len(KINDS)]
    row: dict[str, float] = {"batch_size": float(encoded.totals[5]), "calls": float(counts.sum())}
    row |= dict(zip((f"calls_{k}" for k in KINDS), map(float, counts @ kinds), strict=True))
    row |= {"tensors": float(encoded.totals[0]), "parameters": float(encoded.totals[1])}
    row |= {f"run_{n}": float(v) for n, v in zip(RUN, run_vector(workload, hardware), strict=True)}
    phases = phases_vector(workload)
    row |= {f"phase_{n}": float(v) for n, v in zip(PHASE_INDEX, phases, strict=True)}
    device = device_vector(hardware, workload.precision)
    row |= {f"device_{n}": float(v) for n, v in zip(DEVICE, device, strict=True)}
    for kind in PRODUCT_KINDS:
        of_kind = counts * kinds[:, KINDS.index(kind)]
        row[f"flops_{kind}"] = float(of_kind @ (work[:, 0] + back * work[:, 1]))
    row["flops_forward"] = float(counts @ work[:, 0])
    row["flops_backward"] = back * float(counts @ work[:, 1])
    row["bytes_forward"] = float(counts @ work[:, 2])
    row["bytes_backward"] = back * float(counts @ work[:, 3])
    step = step_vector(encoded, workload)
    row |= {"bytes_parameters": float(encoded.totals[2]), "bytes_input": float(step[4])}
    row["bytes_step"] = float(step[0] * phases[3] + step[2] * phases[4])
    peak, bandwidth = hardware.peak_flops_per_s(workload.precision), hardware.memory_bytes_per_s
    compute_s, memory_s = work[:, :2] / peak, work[:, 2:4] / bandwidth
    weights = np.array([1.0, back])
    row["time_compute"] = float(counts @ compute_s @ weights)
    row["time_memory"] = float(counts @ memory_s @ weights)
    row["time_roofline"] = float(counts @ np.maximum(compute_s, memory_s) @ weights) + _TINY
    row["time_step"] = row["bytes_step"] / bandwidth
    return row
