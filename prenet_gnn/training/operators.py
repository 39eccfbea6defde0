"""Measured operators as one-node graphs: the same network learns from them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from prenet_gnn.data.keys import GraphKey
from prenet_gnn.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from tracing import OpGraph

LIBRARY = "operator"
# Distinct shapes kept of each source, operator and pass; products vary most.
SHAPES = 250
PRODUCT_SHAPES = 700
PRODUCTS = ("bmm", "linear", "conv", "mm", "gemm")
# Fused kernels of inference engines have no operator of ours, more pointwise operators teach
# nothing new, and recurrent layers of a thousand steps take a second each to trace.
LEFT_OUT = ("rope", "silu_mul", "add3", "div", "divu", "pow", "powu", "addu", "rnn", "gru", "lstm")
LEFT_OUT_SOURCES = ("neusight_trace",)
PASSES = {
    "forward": "forward",
    "backward": "backward",
    "backward_input": "backward",
    "backward_weight": "backward",
}
POINTWISE: dict[str, Callable[..., Tensor]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "mulu": lambda a: a * 2.0,
    "relu": torch.relu,
    "gelu": nn.functional.gelu,
    "tanh": torch.tanh,
    "softmax": lambda a: torch.softmax(a, dim=-1),
}
BINARY = ("add", "mul")
NORMS: dict[str, Any] = {"ln": nn.LayerNorm, "rmsnorm": nn.RMSNorm}


class _Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        """Takes the function."""
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Tensor:
        """Calls it."""
        return self.function(*args)


def choose(frame: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Rows of `read_operators` that have an operator of ours, thinned to a few shapes of each kind.

    A shape is kept on all devices or on none.
    """
    kept = frame[
        frame["phase"].isin(list(PASSES))
        & ~frame["op"].isin(LEFT_OUT)
        & ~frame["source"].isin(LEFT_OUT_SOURCES)
        & frame["precision"].isin(["fp32", "fp16", "bf16"])
        & ~frame["fp32_math"]
        & (frame["device"] != "")
        & ~frame["shape"].str.contains("max of", regex=False)  # the slowest call of many
    ].copy()
    # the order of a hash is the same on every machine, and the same for every device
    order = [zlib.crc32(f"{seed}{text}".encode()) for text in kept["shape"]]
    kept["_order"] = order
    kind = ["source", "op", "phase", "precision"]
    rank = kept.groupby(kind)["_order"].rank(method="dense")
    limit = kept["op"].isin(PRODUCTS).map({True: PRODUCT_SHAPES, False: SHAPES})
    return kept[rank <= limit].drop(columns="_order")


def operator_key(op: str, phase: str, shape: str) -> GraphKey:
    """The graph of one operator row; its name holds all there is to know."""
    mode = "infer" if phase == "forward" else "train"
    fixed = {k: v for k, v in json.loads(shape).items() if k not in ("name", "stat", "model", "tp")}
    text = json.dumps({"op": op, "pass": phase, **fixed}, sort_keys=True)
    return GraphKey(LIBRARY, text, mode=mode)


def operator_graph(key: GraphKey) -> OpGraph:
    """Traces the operator of a key.

    Raises:
        DataError: The operator is not known.
    """
    from tracing import trace

    facts = json.loads(key.model)
    module, inputs = _build(facts["op"], facts)
    module.to("meta").train(key.mode == "train")
    wants_input = facts["pass"] != "backward_weight"
    wants_weight = facts["pass"] != "backward_input"
    for parameter in module.parameters():
        parameter.requires_grad_(wants_weight)
    floating = [t.requires_grad_(wants_input) if t.is_floating_point() else t for t in inputs]
    return trace(module, tuple(floating), loss="none")


def _empty(*sizes: int) -> Tensor:
    return torch.empty(sizes, device="meta")


def _build(op: str, f: dict[str, Any]) -> tuple[nn.Module, list[Tensor]]:
    build = _BUILDERS.get(op)
    if build is None:
        raise DataError(f"operator '{op}' has no layer: leave its rows out.")
    return build(op, f)


def _linear(op: str, f: dict[str, Any]) -> tuple[nn.Module, list[Tensor]]:
    if "M" in f:
        return nn.Linear(f["N"], f["K"], device="meta"), [_empty(f["B"], f["M"], f["N"])]
    rows, bias = f.get("tokens", f.get("batch")), bool(f.get("bias", True))
    layer = nn.Linear(f["in_features"], f["out_features"], bias=bias, device="meta")
    return layer, [_empty(int(rows or 1), f["in_features"])]


def _product(op: str, f: dict[str, Any]) -> tuple[nn.Module, list[Tensor]]:
    m, n, k = f["M"], f["N"], f["K"]
    if op == "bmm":
        return _Apply(torch.bmm), [_empty(f["B"], m, n), _empty(f["B"], n, k)]
    if op == "mm":  # these sources write the inner size N
        return _Apply(torch.mm), [_empty(m, n), _empty(n, k)]
    return _Apply(torch.mm), [_empty(m, k), _empty(k, n)]


def _embedding(op: str, f: dict[str, Any]) -> tuple[nn.Module, list[Tensor]]:
    table = nn.Embedding(f["rows"], f["dim"], device="meta")
    return table, [torch.zeros(f["tokens"], dtype=torch.int64, device="meta")]


def _by_rows(op: str, f: dict[str, Any]) -> tuple[nn.Module, list[Tensor]]:
    rows, cols = f.get("B", f.get("tokens")), f.get("H", f.get("hidden"))
    shape = (int(rows or 1), int(cols or 1))
    if op in NORMS:
        return NORMS[op](shape[1], device="meta"), [_empty(*shape)]
    return _Apply(POINTWISE[op]), [_empty(*shape)] * (2 if op in BINARY else 1)


def _convolution(op: str, f: dict[str, Any]) -> tuple[nn.Module, list[Tensor]]:
    def pair(plain: str, vertical: str, horizontal: str) -> tuple[int, int]:
        return int(f.get(vertical, f.get(plain, 0))), int(f.get(horizontal, f.get(plain, 0)))

    kernel, stride = pair("kernel", "kernel_h", "kernel_w"), pair("stride", "stride_h", "stride_w")
    if isinstance(f.get("padding"), str):  # TensorFlow's names
        same = f["padding"] == "SAME"
        padding = (kernel[0] // 2, kernel[1] // 2) if same else (0, 0)
    else:
        padding = pair("padding", "pad_h", "pad_w")
    layer = nn.Conv2d(
        f["in_ch"], f["out_ch"], kernel, stride, padding, bias=bool(f.get("bias")), device="meta"
    )
    return layer, [_empty(f["batch"], f["in_ch"], *pair("in_size", "in_h", "in_w"))]


_BUILDERS: dict[str, Callable[[str, dict[str, Any]], tuple[nn.Module, list[Tensor]]]] = {
    "linear": _linear,
    "embedding": _embedding,
    "conv": _convolution,
    **dict.fromkeys(("bmm", "mm", "gemm"), _product),
    **dict.fromkeys((*POINTWISE, *NORMS), _by_rows),
}
