"""Describes one call by numbers that no device enters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from prenet_gnn.encoding.fields import NODE, NUMBERS, OPERATOR_INDEX, size_log
from tracing.costs.vocab import CONVOLUTIONS, KINDS, PRODUCTS, RECURRENT

if TYPE_CHECKING:
    from prenet_gnn.encoding.precision import Lowered
    from tracing import OpNode
    from tracing.costs.memory_format import InBothLayouts


def operator_index(node: OpNode) -> int:
    """Row of the operator embedding; 0 for operators without their own."""
    return OPERATOR_INDEX.get(node.op, 0)


@dataclass(frozen=True, slots=True)
class Shape:
    """A call as a (batched) matrix product: `batch` products of `rows x inner` by `inner x cols`.

    Calls that are no products have `rows * cols` output elements, `cols` of them contiguous.
    """

    batch: int = 1
    rows: int = 1
    cols: int = 1
    inner: int = 1
    kernel: int = 1
    stride: int = 1


def shape_of(node: OpNode) -> Shape:
    """Sizes of the product or of the rows that a call works on."""
    kind, out = node.kind, node.output
    if kind in CONVOLUTIONS and len(node.input_specs) > 1:
        weight = node.tensor(1).shape
        groups = int(node.attrs.get("groups", 1) or 1)
        stride = node.attrs.get("stride", 1)
        stride = stride[0] if isinstance(stride, list) and stride else stride
        kernel = math.prod(weight[2:])
        channels = out.shape[1] if len(out.shape) > 1 else 1
        rows = out.numel // max(channels, 1)
        return Shape(
            groups, rows, max(channels // groups, 1), weight[1] * kernel, kernel, int(stride or 1)
        )
    if kind == "linear":
        inner = node.tensor(1 if node.op == "addmm" else 0).shape[-1:]
        cols = out.shape[-1] if out.shape else 1
        return Shape(1, out.numel // max(cols, 1), cols, inner[0] if inner else 1)
    if kind == "matmul" and len(out.shape) >= 2:
        left = node.tensor(1 if node.op == "baddbmm" else 0).shape
        batch = math.prod(out.shape[:-2])
        return Shape(batch, out.shape[-2], out.shape[-1], left[-1] if left else 1)
    if kind == "attention" and len(node.input_specs) > 1:
        query, key = node.tensor(0).shape, node.tensor(1).shape
        return Shape(math.prod(query[:-2]), query[-2], key[-2], query[-1])
    if kind == "rnn" and len(node.tensor(0).shape) == 3:
        data = node.tensor(0).shape
        steps = data[1] if node.attrs.get("batch_first") else data[0]
        return Shape(steps, data[0] * data[1] // max(steps, 1), out.shape[-1], data[-1])
    base = node.tensor(0) if kind in ("reduce", "softmax", "pool", "loss") else out
    cols = base.shape[-1] if base.shape else 1
    channels = out.shape[1] if len(out.shape) == 4 else 1
    return Shape(1, base.numel // max(cols, 1), cols, channels)


# Kinds that `shape_of` describes as one matrix product.
SINGLE_PRODUCTS = PRODUCTS - RECURRENT
_KIND_INDEX = {kind: i for i, kind in enumerate(KINDS)}
# Elements from which on kernels need 64-bit indices, or PyTorch splits the batch.
INT32 = 2**31


def describe(
    node: OpNode,
    low: Lowered,
    lies: InBothLayouts,
    flops: float,
    moved_bytes: float,
    fused: tuple[float, float] = (0.0, 0.0),
) -> np.ndarray:
    """Features of one call that no device enters.

    Args:
        node: The call.
        low: Its number formats.
        lies: Memory formats of its input in the plain and in the channels-last layout.
        flops: Arithmetic, forward and backward.
        moved_bytes: Memory traffic, forward and backward.
        fused: Whether it can read from the kernel of a call before it, and the share of its traffic
            that a compiler saves (`encoding.fusion`).

    Returns:
        `(NODE.width,)` float32: one-hot kind, then the columns of `NUMBERS`.
    """
    plain, last = lies
    shape = shape_of(node)
    values = {
        **_product(node, shape),
        **_call(node, low),
        "log_intensity": size_log(flops / max(moved_bytes, 1.0)),
        "last_in_plain": plain.last,
        "converts_in_plain": plain.converts,
        "last_in_last": last.last,
        "converts_in_last": last.converts,
        **_grouping(node, shape),
        **_tiling(node, shape),
        **_image(node),
        "fused_reads": fused[0],
        "fused_share": fused[1],
    }
    row = np.zeros(NODE.width, dtype=np.float32)
    row[_KIND_INDEX.get(node.kind, _KIND_INDEX["other"])] = 1.0
    row[len(KINDS) :] = [values[field.name] for field in NUMBERS]
    return row


def _tiling(node: OpNode, s: Shape) -> dict[str, float]:
    """How much a product grows when its sides are filled up to whole tiles, as logarithms."""
    filled = node.kind in SINGLE_PRODUCTS and s.cols != 1
    sides = {"rows_128": s.rows, "cols_32": s.cols, "cols_64": s.cols, "cols_128": s.cols,
             "inner_32": s.inner}  # fmt: skip
    found = {}
    for name, side in sides.items():
        tile = int(name.rpartition("_")[2])
        growth = -(-side // tile) * tile / max(side, 1)
        found[f"pad_{name}"] = math.log2(growth) / 4.0 if filled else 0.0
    return found


def _image(node: OpNode) -> dict[str, float]:
    """What the sizes of an image decide about kernels.

    Its positions; whether whole vectors of 4 and 8 fit into its rows, and of 8 into its channels
    (channels-last kernels want that); whether a tensor has more elements than 32-bit numbers count.
    """
    largest = max((s.numel for s in (*node.input_specs, *node.output_specs)), default=0)
    shape = node.output.shape
    image = len(shape) == 4
    return {
        "log_space": size_log(shape[2] * shape[3]) if image else 0.0,
        "width_by_4": image and shape[3] % 4 == 0,
        "width_by_8": image and shape[3] % 8 == 0,
        "channels_by_8": image and shape[1] % 8 == 0,
        "beyond_32_bit": largest >= INT32,
    }


def _grouping(node: OpNode, shape: Shape) -> dict[str, float]:
    """Of a grouped convolution: multiply-adds per output, whether each sample has its own kernel.

    The third says whether groups are 2, 4, 8, ... channels wide: others took two to three times as
    long for their FLOPs in channels-last inference on the RTX 3090 (RegNet beside ResNeXt).
    """
    grouped = node.kind in CONVOLUTIONS and shape.batch > 1
    return {
        "taps": math.log2(max(shape.inner, 1)) / 8.0 if grouped else 0.0,
        "per_sample": grouped and len(node.sources) > 1 and node.sources[1].kind != "param",
        "group_power_of_2": grouped and shape.cols > 1 and shape.cols & (shape.cols - 1) == 0,
    }


def _product(node: OpNode, s: Shape) -> dict[str, float]:
    """Sizes of the product, and what they mean for its kernel."""
    is_conv, product = node.kind in CONVOLUTIONS, node.kind in SINGLE_PRODUCTS
    grouped = is_conv and s.batch > 1
    dilation = node.attrs.get("dilation", 1)
    dilation = dilation[0] if isinstance(dilation, list) and dilation else dilation
    sizes = {"batch": s.batch, "rows": s.rows, "cols": s.cols, "inner": s.inner,
             "kernel": s.kernel}  # fmt: skip
    return {
        **{f"log_{name}": size_log(size) for name, size in sizes.items()},
        "half_stride": float(s.stride) / 2.0,
        "cols_by_8": product and s.cols % 8 == 0,
        "inner_by_8": product and s.inner % 8 == 0,
        "is_depthwise": grouped and s.cols * s.batch == s.batch,
        "is_grouped": grouped and s.cols > 1,
        "is_pointwise_conv": is_conv and s.kernel == 1,
        "has_bias": is_conv and len(node.input_specs) > 2,
        "small_channels": product and s.cols < 32,
        "dilation": (float(dilation) if isinstance(dilation, int | float) else 1.0) - 1.0,
    }


def _call(node: OpNode, low: Lowered) -> dict[str, float]:
    """What any call has: tensors in and out, gradients, number formats."""
    out = node.output
    total_in = sum(spec.numel for spec in node.input_specs)
    wanted = [
        source.kind for need, source in zip(node.needs_grad, node.sources, strict=False) if need
    ]
    channels = out.shape[1] if len(out.shape) == 4 else (out.shape[-1] if out.shape else 1)
    return {
        "log_out": size_log(out.numel),
        "log_in_per_out": size_log(total_in / max(out.numel, 1)),
        "inputs": min(len(node.input_specs), 8) / 4.0,
        "broadcasts": node.kind == "binary" and len({spec.numel for spec in node.input_specs}) > 1,
        "inplace": node.inplace,
        "copies": bool(node.attrs.get("copies")),
        "differentiable": node.differentiable,
        "needs_input_grad": any(kind != "param" for kind in wanted),
        "needs_weight_grad": "param" in wanted,
        "training": bool(node.attrs.get("training", False) or node.attrs.get("train", False)),
        "rank": len(out.shape) / 4.0,
        "item_in": (low.item_in[0] if low.item_in else 4) / 4.0,
        "item_out": (low.item_out[0] if low.item_out else 4) / 4.0,
        "casts": len(low.casts) / 2.0,
        "log_channels": size_log(channels),
    }
