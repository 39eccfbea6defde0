"""Measured layers as tables: hyperparameters, device specifications, and PreNeT's features.

Columns follow PreNeT: `size_*` are hyperparameters (every layer as a batched matrix product, as in
`prenet_gnn.encoding.fields.Shape`), `device_*` specifications, `flops_*` (CO), `bytes_*` (CM) and
`time_*` (CT) its computed features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from prenet_gnn.catalogue.devices import Hardware, get_hardware
from prenet_gnn.data.tables import parse_shapes, read_operators
from prenet_gnn.evaluation.baselines.pooling import columns_of

FLOAT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
ELEMENTWISE = ("add", "mul", "div", "pow", "relu", "gelu", "tanh", "addu", "mulu", "divu", "powu")
BINARY = ("add", "mul", "div", "pow")
# Gates of a recurrent cell.
GATES = {"rnn": 1, "gru": 3, "lstm": 4}


@dataclass(frozen=True, slots=True)
class Work:
    """One layer: sizes as a batched product, arithmetic, and elements it reads and writes."""

    batch: float
    rows: float
    cols: float
    inner: float = 1.0
    kernel: float = 1.0
    stride: float = 1.0
    weights: float = 0.0
    read: float = 0.0
    is_product: bool = True

    @property
    def written(self) -> float:
        """Output elements."""
        return self.batch * self.rows * self.cols

    @property
    def flops(self) -> float:
        """Forward arithmetic; two per multiply-add, none for layers that only move data."""
        return 2.0 * self.written * self.inner if self.is_product else 0.0


def convolution(s: Mapping[str, Any]) -> Work:
    """A convolution of any of the sources."""
    height, width = s.get("in_h", s.get("in_size")), s.get("in_w", s.get("in_size"))
    kh, kw = s.get("kernel_h", s.get("kernel")), s.get("kernel_w", s.get("kernel"))
    stride = (s.get("stride_h", s.get("stride")), s.get("stride_w", s.get("stride")))
    padding = s.get("padding", (s.get("pad_h"), s.get("pad_w")))
    if padding == "SAME":
        out = (-(-height // stride[0]), -(-width // stride[1]))
    else:
        pads = padding if isinstance(padding, tuple) else (padding, padding)
        pads = (0, 0) if padding == "VALID" else pads
        out = (
            (height + 2 * pads[0] - kh) // stride[0] + 1,
            (width + 2 * pads[1] - kw) // stride[1] + 1,
        )
    batch, in_ch, out_ch = s["batch"], s["in_ch"], s["out_ch"]
    groups = s.get("groups", 1)
    inner = in_ch // groups * kh * kw
    return Work(
        groups, batch * out[0] * out[1], out_ch / groups, inner, kh * kw, stride[0],
        weights=out_ch * inner, read=batch * in_ch * height * width,
    )  # fmt: skip


def dense(s: Mapping[str, Any]) -> Work:
    """A linear layer of any of the sources."""
    if "M" in s:
        rows, inner, cols = s["B"] * s["M"], s["N"], s["K"]
    else:
        rows, inner, cols = s.get("tokens", s.get("batch")), s["in_features"], s["out_features"]
    return Work(1, rows, cols, inner, weights=inner * cols, read=rows * inner)


def product(s: Mapping[str, Any]) -> Work:
    """A batched matrix product, the core of attention."""
    read = s["B"] * (s["M"] * s["K"] + s["K"] * s["N"])
    return Work(s["B"], s["M"], s["N"], s["K"], read=read)


def rowwise(s: Mapping[str, Any]) -> Work:
    """Softmax, layer norm and pointwise operators on a matrix."""
    rows, cols = s.get("B", s.get("tokens")), s.get("H", s.get("hidden"))
    return Work(1, rows, cols, read=rows * cols * s.get("operands", 1), is_product=False)


def embedding(s: Mapping[str, Any]) -> Work:
    """A look-up of one line per token; of the table only those lines are read."""
    size = s["tokens"] * s["dim"]
    return Work(1, s["tokens"], s["dim"], inner=s["rows"], read=size, is_product=False)


def recurrent(s: Mapping[str, Any]) -> Work:
    """A recurrent layer whose input is as wide as its state; `batch` counts the steps."""
    gates, hidden, layers = s["gates"], s["hidden"], s.get("layers", 1)
    width = s.get("in", hidden)
    return Work(
        s["steps"] * layers, s["batch"], gates * hidden, hidden + width,
        weights=layers * gates * hidden * (hidden + width),
        read=s["steps"] * s["batch"] * width,
    )  # fmt: skip


@cache
def device_columns(device: str | Hardware, precision: str) -> dict[str, float]:
    """Specifications as in PreNeT's table of GPUs."""
    h = get_hardware(device) if isinstance(device, str) else device
    return {
        "device_multiprocessors": float(h.multiprocessors),
        "device_clock_hz": float(h.boost_clock_hz or h.base_clock_hz or 0.0),
        "device_bytes_per_s": h.memory_bytes_per_s,
        "device_memory_bytes": float(h.memory_bytes),
        "device_l2_bytes": float(h.l2_bytes or 0),
        "device_fp32_flops_per_s": h.peak_flops_per_s("fp32"),
        "device_fp16_flops_per_s": h.peak_flops_per_s("fp16"),
        "device_flops_per_s": h.peak_flops_per_s(precision),
    }


def with_features(table: pd.DataFrame) -> pd.DataFrame:
    """Adds CO, CM, CT and device columns to the columns of `row_of`."""
    table = table.reset_index(drop=True).copy()
    specs = pd.DataFrame(
        [device_columns(d, p) for d, p in zip(table["device"], table["precision"], strict=True)]
    )
    item = table["precision"].map(FLOAT_BYTES).to_numpy(dtype=float)
    table["bytes_weights"] = table.pop("elements_weights") * item
    table["bytes_read"] = table.pop("elements_read") * item
    table["bytes_written"] = table.pop("elements_written") * item
    total = table["bytes_weights"] + table["bytes_read"] + table["bytes_written"]
    table["bytes_total"] = total
    table["time_compute"] = table["flops_forward"] / specs["device_flops_per_s"]
    table["time_memory"] = total / specs["device_bytes_per_s"]
    table["time_roofline"] = np.maximum(table["time_compute"], table["time_memory"])
    return pd.concat([table, specs], axis=1)


def row_of(work: Work, **more: object) -> dict[str, object]:
    """One line of a table before `with_features`."""
    return {
        **more,
        "size_batch": work.batch, "size_rows": work.rows, "size_cols": work.cols,
        "size_inner": work.inner, "size_kernel": work.kernel, "size_stride": work.stride,
        "flops_forward": work.flops, "elements_weights": work.weights,
        "elements_read": work.read, "elements_written": work.written,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Selection:
    """Which operator rows make up one family."""

    sources: tuple[str, ...]
    ops: tuple[str, ...]
    work: Callable[[Mapping[str, Any]], Work]
    precision: str = "fp32"
    phases: tuple[str, ...] = ("forward",)


# PreNeT's families, and the operators of NeuSight that a sum over a whole graph needs.
FAMILIES = {
    "convolution": Selection(("neusight", "deepbench"), ("conv",), convolution),
    "convolution, training": Selection(
        ("ml-performance-prediction",), ("conv",), convolution,
        phases=("forward+backward+optimizer",),
    ),
    "dense": Selection(("neusight",), ("linear",), dense),
    "dense, training": Selection(
        ("ml-performance-prediction",), ("linear",), dense, phases=("forward+backward+optimizer",)
    ),
    "attention": Selection(("neusight",), ("bmm",), product),
    "embedding": Selection(("vidur",), ("embedding",), embedding, "fp16"),
    "layer norm": Selection(("neusight",), ("ln",), rowwise),
    "recurrent": Selection(("deepbench",), tuple(GATES), recurrent),
    "softmax": Selection(("neusight",), ("softmax",), rowwise),
    "elementwise": Selection(("neusight",), ELEMENTWISE, rowwise),
}  # fmt: skip


def operator_table(
    operators: pd.DataFrame, family: str, at_most: int, seed: int = 0
) -> pd.DataFrame:
    """A sample of the operator rows of a family, with the same share of every device."""
    chosen = FAMILIES[family]
    mask = operators["source"].isin(chosen.sources) & operators["op"].isin(chosen.ops)
    mask &= (operators["precision"] == chosen.precision) & operators["phase"].isin(chosen.phases)
    frame = operators[mask & (operators["device"] != "") & (operators["latency_s"] > 0)]
    per_device = max(1, at_most // max(frame["device"].nunique(), 1))
    parts = [
        part.sample(min(len(part), per_device), random_state=seed)
        for _, part in frame.groupby("device")
    ]
    frame = pd.concat(parts).sort_index()
    rows = []
    for line, shape in zip(frame.itertuples(), parse_shapes(frame), strict=True):
        op = str(line.op)
        shape |= {"gates": GATES.get(op, 1), "operands": 2 if op in BINARY else 1}
        if op == "ln" and "tokens" in shape:
            shape["B"] = shape["tokens"]
        more = {f"is_{name}": float(op == name) for name in chosen.ops if len(chosen.ops) > 1}
        named = {"device": line.device, "precision": line.precision, "seconds": line.latency_s}
        rows.append(row_of(chosen.work(shape), **named, **more))
    return with_features(pd.DataFrame(rows))


def load_operators(data_dir: Path) -> pd.DataFrame:
    """The operator rows that any family uses."""
    used = {source for selection in FAMILIES.values() for source in selection.sources}
    frame = read_operators(data_dir)
    return frame[frame["source"].isin(used)]


def feature_columns(table: pd.DataFrame, feature_set: str) -> list[str]:
    """Columns of a layer table that a set of features uses; constant ones are left out."""
    names = columns_of(table.drop(columns=["device", "precision", "seconds"]), feature_set)
    return [name for name in names if table[name].nunique() > 1]
