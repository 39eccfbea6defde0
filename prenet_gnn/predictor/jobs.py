"""One row of a table of questions: which model, how it is run, on which device."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prenet_gnn.errors import ConfigError, DataError
from prenet_gnn.workload.frameworks import fuses_attention
from prenet_gnn.workload.workload import Workload

REQUIRED_COLUMNS = ("model", "batch_size", "hardware")
OPTIONAL_COLUMNS = (
    "image_size",
    "seq_len",
    "mode",
    "precision",
    "channels_last",
    "compiled",
    "framework",
    "cudnn_benchmark",
    "optimizer",
    "timed",
    "attention",
)
ATTENTIONS = ("sdpa", "eager")
LARGEST_SIZE = 10**9

_EMPTY = {"", "nan", "none", "null", "na", "n/a", "<na>"}
_TRUE = {"true", "1", "1.0", "yes"}
_FALSE = {"false", "0", "0.0", "no"}


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """What has to be traced once; the batch size is not in it, since one trace serves all."""

    model: str
    image_size: int | None = None
    seq_len: int | None = None
    mode: str = "train"
    attention: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One question to the predictor."""

    request: TraceRequest
    batch_size: int
    workload: Workload
    hardware: str


def parse_job(row: Mapping[str, str | None]) -> Job:
    """Reads one row of text fields; an empty field or NaN takes its default.

    The default optimizer is `adamw` where a training time covers the optimizer step (`timed` is
    empty or names `optimizer`) and `none` elsewhere, since a step that is not timed must not be
    billed. The default attention is what the framework version runs (`attention_of`).
    """
    model, hardware = _text(row, "model"), _text(row, "hardware")
    for name, value in (("model", model), ("hardware", hardware)):
        if not value:
            raise DataError(f"column '{name}' is empty.")
    batch_size = _size(row, "batch_size")
    if batch_size is None:
        raise DataError("column 'batch_size' is empty.")
    workload = _workload(row)
    request = TraceRequest(
        model,
        _size(row, "image_size"),
        _size(row, "seq_len"),
        workload.mode,
        attention_of(_text(row, "attention").lower(), workload, model),
    )
    return Job(request, batch_size, workload, hardware)


def attention_of(asked: str, workload: Workload, model: str) -> str | None:
    """The attention code to trace: what was asked for, else what the version of PyTorch runs.

    None leaves it to the library, whose default is fused attention.
    """
    if asked and asked not in ATTENTIONS:
        raise ConfigError(f"attention '{asked}' is not known. Allowed: {', '.join(ATTENTIONS)}.")
    if asked:
        return asked
    version = workload.framework_version
    library = model.partition(":")[0]
    return None if version is None or fuses_attention(library, version) else "eager"


def check_size(name: str, value: int) -> int:
    """Refuses sizes that no run can have."""
    if not 1 <= value <= LARGEST_SIZE:
        raise ConfigError(f"{name} must be between 1 and {LARGEST_SIZE:,}, not {value:,}.")
    return value


def read_rows(path: str | Path) -> tuple[list[str], list[dict[str, str]]]:
    """Reads a CSV table (also gzip'd), checking that the needed columns are there.

    Returns:
        Column names in order, and one dict of text fields per row. Fields beyond the last column
        are kept under the empty name, so that such a row can be reported and not lost.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise DataError(f"{path} is not a readable CSV table in UTF-8 ({error}).") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey="", restval="")
    try:
        columns = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = columns
        rows = [{k: v if isinstance(v, str) else ",".join(v) for k, v in r.items()} for r in reader]
    except csv.Error as error:
        raise DataError(f"{path} is not a readable CSV table ({error}).") from error
    missing = [name for name in REQUIRED_COLUMNS if name not in columns]
    if missing:
        raise DataError(
            f"{path} lacks the column {', '.join(missing)}. Needed: {', '.join(REQUIRED_COLUMNS)};"
            f" optional: {', '.join(OPTIONAL_COLUMNS)}."
        )
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise DataError(f"{path} has the column {', '.join(twice)} more than once.")
    return columns, rows


def _workload(row: Mapping[str, str | None]) -> Workload:
    mode = _text(row, "mode").lower() or "train"
    timed = _text(row, "timed")
    timed_optimizer = not timed or "optimizer" in timed.split("+")
    default = Workload()
    return Workload(
        mode=mode,
        precision=_text(row, "precision").lower() or default.precision,
        optimizer=_text(row, "optimizer").lower()
        or ("adamw" if mode == "train" and timed_optimizer else "none"),
        channels_last=_flag(row, "channels_last", default.channels_last),
        compiled=_flag(row, "compiled", default.compiled),
        cudnn_benchmark=_flag(row, "cudnn_benchmark", default.cudnn_benchmark),
        framework=_text(row, "framework"),
        timed=timed,
    )


def _text(row: Mapping[str, str | None], name: str) -> str:
    value = (row.get(name) or "").strip()
    # "none" is a value of the column `optimizer`
    return "" if value.lower() in _EMPTY and (name, value) != ("optimizer", "none") else value


def _size(row: Mapping[str, str | None], name: str) -> int | None:
    text = _text(row, name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    # A table written by pandas holds whole numbers as 32.0
    if not value.is_integer():
        raise DataError(f"{name} must be a whole number, not '{text}'.")
    return check_size(name, int(value))


def _flag(row: Mapping[str, str | None], name: str, default: bool) -> bool:
    text = _text(row, name).lower()
    if not text:
        return default
    if text not in _TRUE | _FALSE:
        raise DataError(f"{name} must be true or false, not '{text}'.")
    return text in _TRUE
