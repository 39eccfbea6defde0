"""The measured tables with SI units, canonical device names and one spelling per value."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.data.reading import FIRST_LINE, RowProblem, Schema, lines, raise_first, read_table
from prenet_gnn.data.schema import MEASUREMENTS, MEMORY, OPERATORS
from prenet_gnn.errors import ConfigError, DataError, UnknownHardwareError
from prenet_gnn.workload.workload import PHASES, PRECISIONS

log = logging.getLogger(__name__)

MEASUREMENT_FILES = ("measurements.csv.gz", "measurements_extra.csv.gz")
OPERATOR_FILES = ("operators.csv.gz", "operators_extra.csv.gz")
MEMORY_FILE = "memory.csv.gz"
TRAINING_LIBRARIES = ("timm", "torchvision", "transformers")
# `Workload` knows more optimizers than the weights were fitted with.
FITTED_OPTIMIZERS = ("none", "sgd", "sgd_momentum", "adam", "adamw")
# Phases that belong to the input pipeline or to what follows the model, not to the model.
PIPELINE_PHASES = ("data_loading", "postprocess")

MS_PER_S = 1e3
# The spelling of `Workload`. "sgd" in the timm script and the NVIDIA examples has momentum.
_OPTIMIZER_NAMES = {
    "sgd": "sgd_momentum",
    "decoupled_adamw": "adamw",
    "8-bit adamw": "adamw8bit",
}
_TIMES = {
    "step_time": "step",
    "step_time_mean": "step_mean",
    "step_time_std": "step_std",
    "fwd": "forward",
    "bwd": "backward",
}
_COUNTS = {"params_m": ("params", 1e6), "gmacs": ("macs", 1e9), "macts": ("activations", 1e6)}


def find_data_dir(path: str | Path | None = None) -> Path:
    """Finds the folder with the measured tables.

    Args:
        path: The folder; without it the environment variable `PRENET_DATA` names it.

    Raises:
        DataError: No folder is named, or it holds no `measurements.csv.gz`.
    """
    named = str(path) if path else os.environ.get("PRENET_DATA", "")
    if not named:
        raise DataError(
            "no folder with measured data is named. Give --data FOLDER or set PRENET_DATA; "
            "`prenet data fetch` downloads the public sources."
        )
    folder = Path(named).expanduser()
    if not (folder / MEASUREMENT_FILES[0]).is_file():
        what = "has no measurements.csv.gz" if folder.is_dir() else "does not exist"
        raise DataError(
            f"the data folder {folder} {what}. Give another with --data or PRENET_DATA; "
            "`prenet data fetch` downloads the public sources."
        )
    return folder


def read_measurements(data_dir: str | Path) -> pd.DataFrame:
    """Reads both end-to-end tables as one, in SI units.

    Columns: `table`, `row` (line in that file), `source`, `model`, `library`, `mode`, `device`
    (catalogue name, empty where the catalogue does not know it), `gpu` (as written), `precision`,
    `channels_last`, `compiled`, `cudnn_benchmark` (False where unknown), `framework`,
    `torch_version` (major x 100 + minor, 0 = unknown), `cuda`, `n_gpus`, `batch_size`,
    `image_size` and `seq_len` (0 = none), `optimizer` (`Workload` spelling), `timed` (phases in the
    order they run), `has_input_pipeline`, `step_s`, `step_mean_s`, `step_std_s`, `n_iters`,
    `forward_s`, `backward_s`, `samples_per_s`, `params`, `macs`, `activations`,
    `peak_memory_bytes`, `memory_kind`, `suspect`, `notes`, `source_file`.

    Raises:
        DataError: A file is damaged, lacks a column or holds a value of the wrong type or range.
    """
    frame = read_tables(Path(data_dir), MEASUREMENT_FILES, MEASUREMENTS, phase_problems)
    return normalise(frame, MEASUREMENTS)


def training_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Keeps the rows that can teach the time of one model on one known device.

    Left out: suspect rows, several devices, libraries without a traceable model, input pipelines,
    devices outside the catalogue, precisions that `Workload` does not have, optimizers that
    are not fitted.
    """
    keep = {
        "suspect": ~frame["suspect"],
        "several devices": frame["n_gpus"].isin((0, 1)),
        "library": frame["library"].isin(TRAINING_LIBRARIES),
        "input pipeline": ~frame["has_input_pipeline"],
        "precision": frame["precision"].isin(PRECISIONS),
        "optimizer": frame["optimizer"].isin(FITTED_OPTIMIZERS),
        "unknown device": frame["device"] != "",
    }
    kept = pd.Series(True, index=frame.index)
    for reason, mask in keep.items():
        log.info("%d rows left out: %s", int((kept & ~mask).sum()), reason)
        kept &= mask
    return frame[kept]


def read_operators(data_dir: str | Path) -> pd.DataFrame:
    """Reads both operator tables as one.

    Columns: `table`, `row`, `source`, `op`, `device`, `gpu`, `precision` (`fp16` with `fp32_math`
    for half storage with single-precision arithmetic), `fp32_math`, `phase`, `shape` (JSON text,
    see `parse_shapes`), `latency_s`, `framework`, `split`.

    Raises:
        DataError: A file is damaged, lacks a column or holds a value of the wrong type or range.
    """
    frame = read_tables(Path(data_dir), OPERATOR_FILES, OPERATORS)
    frame["device"] = _map_unique(frame["gpu"], device_name)
    frame["latency_s"] = frame.pop("latency_ms") / MS_PER_S
    frame["fp32_math"] = frame["precision"] == "fp16 (fp32 math)"
    frame["precision"] = frame["precision"].replace({"fp16 (fp32 math)": "fp16"})
    return frame.rename(columns={"pass": "phase"})


def parse_shapes(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Decodes the `shape` column of operator rows.

    Raises:
        DataError: A shape is not a JSON object; names file and line.
    """
    shapes = []
    for table, row, text in zip(frame["table"], frame["row"], frame["shape"], strict=True):
        try:
            shape = json.loads(text)
        except json.JSONDecodeError as error:
            raise DataError(f"{table} line {row}, shape: not JSON ({error}).") from None
        if not isinstance(shape, dict):
            raise DataError(f"{table} line {row}, shape: '{text}' is not a JSON object.")
        shapes.append(shape)
    return shapes


def read_memory(data_dir: str | Path) -> pd.DataFrame:
    """Reads the measured peak memories; columns are spelled as in `read_measurements`.

    Raises:
        DataError: The file is damaged, lacks a column or holds a value of the wrong type or range.
    """
    frame = read_tables(Path(data_dir), (MEMORY_FILE,), MEMORY)
    frame["device"] = _map_unique(frame["gpu"], device_name)
    for name in ("batch_size", "image_size", "seq_len", "n_gpus"):
        frame[name] = frame[name].fillna(0).astype(np.int64)
    frame["optimizer"] = frame["optimizer"].replace(_OPTIMIZER_NAMES)
    return frame.rename(columns={"task": "mode"})


def device_name(name: str) -> str:
    """Catalogue name of a device; empty where the catalogue does not have it."""
    try:
        return str(get_hardware(name).name)
    except (UnknownHardwareError, ConfigError):
        return ""


def phase_problems(
    frame: pd.DataFrame, file: str, known: Sequence[str] = PHASES
) -> list[RowProblem]:
    """Rows whose `task` or `timed` has an unknown value, or whose two do not go together."""
    found = []
    for line in lines(~frame["task"].isin(("train", "infer"))):
        task = frame["task"].iloc[line - 2]
        found.append(RowProblem(file, line, "task", f"'{task}' is neither train nor infer"))
    for timed in frame["timed"].unique():
        phases = timed.split("+") if timed else []
        unknown = [p for p in phases if p not in known]
        mask = frame["timed"] == timed
        if unknown:
            problem = f"phase '{unknown[0]}' is not known; known are {', '.join(known)}"
            found += [RowProblem(file, line, "timed", problem) for line in lines(mask)]
        mismatch = mask & ((frame["task"] == "train") != ("backward" in phases))
        problem = f"'{timed}' does not go with the task"
        found += [RowProblem(file, line, "task+timed", problem) for line in lines(mismatch)]
    return found


def torch_version(framework: str) -> int:
    """PyTorch version as major x 100 + minor (`torch-1.12` -> 112), 0 = unknown."""
    digits = framework.removeprefix("torch-").split(" ")[0].split(".")
    known = (
        framework.startswith("torch-")
        and len(digits) >= 2
        and digits[0].isdigit()
        and digits[1].isdigit()
    )
    return 100 * int(digits[0]) + int(digits[1]) if known else 0


def normalise(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """End-to-end rows in SI units, with device names of the catalogue and spellings of `Workload`.

    Args:
        frame: What `read_tables` gives.
        schema: That of the table; a table need not have all columns of `MEASUREMENTS`.
    """
    for name in ("n_gpus", "batch_size", "image_size", "seq_len", "n_iters"):
        frame[name] = frame[name].fillna(0).astype(np.int64)
    for name in (*schema.bools, *schema.optional_bools):
        frame[name] = frame[name].astype("boolean").fillna(False).astype(bool)
    for old, new in _TIMES.items():
        if f"{old}_ms" in frame:
            frame[f"{new}_s"] = frame.pop(f"{old}_ms") / MS_PER_S
    for old, (new, factor) in _COUNTS.items():
        if old in frame:
            frame[new] = frame.pop(old) * factor
    frame["timed"] = _map_unique(frame["timed"], _canonical_timed)
    frame["has_input_pipeline"] = _map_unique(frame["timed"], _has_pipeline).astype(bool)
    frame["torch_version"] = _map_unique(frame["framework"], torch_version).astype(np.int64)
    frame["device"] = _map_unique(frame["gpu"], device_name)
    unknown = sorted(set(frame.loc[frame["device"] == "", "gpu"]))
    if unknown:
        log.warning("devices that the catalogue does not have: %s", ", ".join(unknown))
    frame["optimizer"] = frame["optimizer"].replace(_OPTIMIZER_NAMES)
    return frame.rename(columns={"task": "mode"})


def _canonical_timed(timed: str) -> str:
    """The phases of `Workload` in the order they run."""
    return "+".join(phase for phase in PHASES if phase in timed.split("+"))


def _has_pipeline(timed: str) -> bool:
    return any(phase in PIPELINE_PHASES for phase in timed.split("+"))


def _map_unique(values: pd.Series, function: Any) -> pd.Series:
    """Applies a function once per distinct value; the tables have few of them."""
    return values.map({value: function(value) for value in values.unique()})


def read_tables(
    folder: Path,
    names: tuple[str, ...],
    schema: Schema,
    check: Callable[[pd.DataFrame, str], list[RowProblem]] = lambda frame, file: [],
) -> pd.DataFrame:
    """Tables of one schema as one, with file and line of each row; all but the first may lack."""
    parts: list[pd.DataFrame] = []
    for path in (folder / name for name in names):
        if parts and not path.exists():
            continue
        frame, problems = read_table(path, schema)
        raise_first(problems + check(frame, path.name), path)
        frame.insert(0, "row", np.arange(len(frame)) + FIRST_LINE)
        frame.insert(0, "table", path.name)
        parts.append(frame)
    return pd.concat(parts, ignore_index=True)
