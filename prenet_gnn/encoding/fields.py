"""The numbers that describe one call, each with its meaning; the order is the order of columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracing.costs.vocab import KINDS

if TYPE_CHECKING:
    from prenet_gnn.encoding.precision import Lowered
    from tracing import OpNode
    from tracing.costs.memory_format import Format

SCHEMA_VERSION = 4

# Operators that get an embedding of their own; all others share one by kind.
OPERATORS = tuple(
    "conv2d linear matmul bmm scaled_dot_product_attention batch_norm layer_norm "
    "group_norm rms_norm softmax log_softmax relu gelu silu sigmoid tanh hardswish "
    "hardsigmoid hardtanh leaky_relu elu prelu relu6 softplus mish add mul div sub pow "
    "where sqrt rsqrt exp sin cos neg clamp max_pool2d avg_pool2d adaptive_avg_pool2d "
    "mean sum amax max linalg_vector_norm var cat stack clone contiguous reshape flatten "
    "pad roll index gather index_select expand repeat pixel_shuffle upsample_nearest2d "
    "upsample_bilinear2d upsample_bicubic2d embedding dropout cross_entropy_loss lstm "
    "gru einsum topk cumsum masked_fill normalize unfold im2col conv1d conv_transpose2d "
    "instance_norm split chunk arange zeros ones tril erf log abs bernoulli div_ baddbmm "
    "addmm square rsub glu".split()
)
OPERATOR_INDEX = {name: i + 1 for i, name in enumerate(OPERATORS)}


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
    if kind in ("conv", "conv_transpose") and len(node.input_specs) > 1:
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


NUMBERS = (
    "log_batch", "log_rows", "log_cols", "log_inner", "log_kernel", "log_stride", "cols_by_8",
    "inner_by_8", "is_depthwise", "is_grouped", "is_pointwise_conv",
    "log_out", "log_in_per_out", "inputs", "broadcasts", "inplace", "has_bias", "copies",
    "differentiable", "needs_input_grad", "needs_weight_grad", "training", "rank", "item_in",
    "item_out", "casts", "log_intensity", "log_channels", "small_channels", "dilation",
    "last_in_plain", "converts_in_plain", "last_in_last", "converts_in_last", "taps", "per_sample",
    "group_power_of_2", "pad_rows_128", "pad_cols_32", "pad_cols_64", "pad_cols_128",
    "pad_inner_32", "log_space", "width_by_4", "width_by_8", "channels_by_8",
    "beyond_32_bit", "fused_reads", "fused_share",
)  # fmt: skip
WIDTH = len(KINDS) + len(NUMBERS)
# Kinds that `shape_of` describes as one matrix product.
PRODUCTS = ("conv", "conv_transpose", "linear", "matmul", "attention")
_KIND_INDEX = {kind: i for i, kind in enumerate(KINDS)}
# Elements from which on kernels need 64-bit indices, or PyTorch splits the batch.
INT32 = 2**31


def size_log(value: float) -> float:
    """How sizes enter the columns: logarithm to base 2 of one more, in eighths."""
    return math.log2(1.0 + max(value, 0.0)) / 8.0


def describe(
    node: OpNode,
    low: Lowered,
    lies: tuple[Format, Format],
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
        `(WIDTH,)` float32: one-hot kind, then the columns of `NUMBERS`.
    """
    row = np.zeros(WIDTH, dtype=np.float32)
    row[_KIND_INDEX.get(node.kind, _KIND_INDEX["other"])] = 1.0
    plain, last = lies
    placed = [plain.last, plain.converts, last.last, last.converts]
    shape = shape_of(node)
    numbers = _numbers(node, low, flops, moved_bytes, shape)
    more = _grouping(node, shape) + _tiling(node, shape) + _image(node)
    row[len(KINDS) :] = numbers + [float(flag) for flag in placed] + more + list(fused)
    return row


def _tiling(node: OpNode, s: Shape) -> list[float]:
    """How much a product grows when its sides are filled up to whole tiles, as logarithms."""
    product = node.kind in PRODUCTS
    if not product or s.cols == 1:
        return [0.0] * 5
    sides = ((s.rows, 128), (s.cols, 32), (s.cols, 64), (s.cols, 128), (s.inner, 32))
    return [math.log2(-(-side // tile) * tile / max(side, 1)) / 4.0 for side, tile in sides]


def _image(node: OpNode) -> list[float]:
    """What the sizes of an image decide about kernels.

    Its positions; whether whole vectors of 4 and 8 fit into its rows, and of 8 into its channels
    (channels-last kernels want that); whether a tensor has more elements than 32-bit numbers count.
    """
    largest = max((s.numel for s in (*node.input_specs, *node.output_specs)), default=0)
    beyond = float(largest >= INT32)
    shape = node.output.shape
    if len(shape) != 4:
        return [0.0] * 4 + [beyond]
    by_8 = float(shape[1] % 8 == 0)
    width = [float(shape[3] % 4 == 0), float(shape[3] % 8 == 0)]
    return [size_log(shape[2] * shape[3]), *width, by_8, beyond]


def _grouping(node: OpNode, shape: Shape) -> list[float]:
    """Of a grouped convolution: multiply-adds per output, whether each sample has its own kernel.

    The third says whether groups are 2, 4, 8, ... channels wide: others took two to three times as
    long for their FLOPs in channels-last inference on the RTX 3090 (RegNet beside ResNeXt).
    """
    if node.kind not in ("conv", "conv_transpose"):
        return [0.0, 0.0, 0.0]
    grouped = shape.batch > 1
    per_sample = grouped and len(node.sources) > 1 and node.sources[1].kind != "param"
    even = grouped and shape.cols > 1 and shape.cols & (shape.cols - 1) == 0
    return [grouped * math.log2(max(shape.inner, 1)) / 8.0, float(per_sample), float(even)]


def _numbers(node: OpNode, low: Lowered, flops: float, moved_bytes: float, s: Shape) -> list[float]:
    out = node.output
    is_conv = node.kind in ("conv", "conv_transpose")
    grouped = is_conv and s.batch > 1
    product = node.kind in PRODUCTS
    total_in = sum(spec.numel for spec in node.input_specs)
    dilation = node.attrs.get("dilation", 1)
    dilation = dilation[0] if isinstance(dilation, list) and dilation else dilation
    needs_weight = any(
        need and source.kind == "param"
        for need, source in zip(node.needs_grad, node.sources, strict=False)
    )
    needs_input = any(
        need and source.kind != "param"
        for need, source in zip(node.needs_grad, node.sources, strict=False)
    )
    channels = out.shape[1] if len(out.shape) == 4 else (out.shape[-1] if out.shape else 1)
    return [
        *(size_log(size) for size in (s.batch, s.rows, s.cols, s.inner, s.kernel)),
        float(s.stride) / 2.0, float(product and s.cols % 8 == 0),
        float(product and s.inner % 8 == 0), float(grouped and s.cols * s.batch == s.batch),
        float(grouped and s.cols > 1), float(is_conv and s.kernel == 1),
        size_log(out.numel), size_log(total_in / max(out.numel, 1)),
        min(len(node.input_specs), 8) / 4.0,
        float(len({spec.numel for spec in node.input_specs}) > 1 and node.kind == "binary"),
        float(node.inplace), float(is_conv and len(node.input_specs) > 2),
        float(bool(node.attrs.get("copies"))), float(node.differentiable), float(needs_input),
        float(needs_weight),
        float(bool(node.attrs.get("training", False) or node.attrs.get("train", False))),
        len(out.shape) / 4.0, (low.item_in[0] if low.item_in else 4) / 4.0,
        (low.item_out[0] if low.item_out else 4) / 4.0, len(low.casts) / 2.0,
        size_log(flops / max(moved_bytes, 1.0)), size_log(channels), float(product and s.cols < 32),
        (float(dilation) if isinstance(dilation, int | float) else 1.0) - 1.0,
    ]  # fmt: skip
