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
    flops, moved = (encoded.counts @ encoded.pair(name) for name in ("flops", "bytes"))
    timed = _timed(workload)
    return {
        "device": hardware.name,
        "forward_flops": flops[0],
        "backward_flops": flops[1] * timed[1],
        "bytes": moved @ timed,
        "peak_flops_per_s": hardware.peak_flops_per_s(workload.precision),
        "memory_bytes_per_s": hardware.memory_bytes_per_s,
    }


def _timed(workload: Workload) -> np.ndarray:
    """Whether forward and backward pass count, `(2,)`; the forward pass always does."""
    return np.array([1.0, float("backward" in workload.phases)])


def pooled_row(encoded: Encoded, workload: Workload, hardware: Hardware) -> dict[str, float]:
    """The columns of one graph, run and device."""
    from prenet_gnn.encoding.batch import phases_vector, step_vector
    from prenet_gnn.encoding.device import device_vector, run_vector
    from prenet_gnn.encoding.fields import DEVICE, PHASES, RUN, STEP

    timed, counts = _timed(workload), encoded.counts
    flops, moved = encoded.pair("flops"), encoded.pair("bytes")
    calls = np.bincount(encoded.kinds, weights=counts, minlength=len(KINDS))
    step, phases = step_vector(encoded, workload), phases_vector(workload)
    row = {
        "batch_size": encoded.total("batch"),
        "calls": counts.sum(),
        **_named("calls", KINDS, calls),
        "tensors": encoded.total("trainable_tensors"),
        "parameters": encoded.total("trainable_numel"),
        **_named("run", RUN.names, run_vector(workload, hardware)),
        **_named("phase", PHASES.names, phases),
        **_named("device", DEVICE.names, device_vector(hardware, workload.precision)),
    }
    for kind in PRODUCT_KINDS:
        row[f"flops_{kind}"] = counts * (encoded.kinds == KINDS.index(kind)) @ flops @ timed
    row["flops_forward"], row["flops_backward"] = (counts @ flops) * timed
    row["bytes_forward"], row["bytes_backward"] = (counts @ moved) * timed
    row["bytes_parameters"] = encoded.total("parameter_bytes")
    row["bytes_input"] = STEP.of(step, "input_bytes")
    row["bytes_step"] = sum(
        STEP.of(step, f"{name}_bytes") * PHASES.of(phases, name)
        for name in ("optimizer", "zero_grad")
    )
    bandwidth = hardware.memory_bytes_per_s
    compute_s, memory_s = flops / hardware.peak_flops_per_s(workload.precision), moved / bandwidth
    row["time_compute"] = counts @ compute_s @ timed
    row["time_memory"] = counts @ memory_s @ timed
    row["time_roofline"] = counts @ np.maximum(compute_s, memory_s) @ timed + _TINY
    row["time_step"] = row["bytes_step"] / bandwidth
    return {name: float(value) for name, value in row.items()}


def _named(group: str, names: Sequence[str], values: np.ndarray) -> dict[str, Any]:
    return {f"{group}_{name}": value for name, value in zip(names, values, strict=True)}
