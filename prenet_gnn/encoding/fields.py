"""Every column of every array that the network takes: its name, unit, transform and origin, once.

Arrays are read by name alone (`DEVICE.of(array, "log_clock")`); weights keep these names and are
refused where they differ (`network.checkpoint`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracing.costs.vocab import KINDS


@dataclass(frozen=True, slots=True)
class Field:
    """One column.

    Attributes:
        name: By which it is read.
        unit: Of the quantity before its transform; empty for counts, shares and flags.
        transform: How the quantity enters: `log` (natural), `size` (`size_log`), `flag` (0 or 1),
            `one-hot`, or how it is scaled; empty for as it is.
        origin: What it is taken from.
    """

    name: str
    unit: str = ""
    transform: str = ""
    origin: str = ""


class Table:
    """The columns of one array, in order."""

    def __init__(self, scope: str, fields: Sequence[Field]) -> None:
        """Takes what a row of the array stands for, and the columns."""
        self.scope, self.fields = scope, tuple(fields)
        self.names = tuple(field.name for field in self.fields)
        self._places = {name: place for place, name in enumerate(self.names)}
        if len(self._places) != len(self.names):
            raise ValueError(f"a column of {scope} has a name twice")

    @property
    def width(self) -> int:
        """How many columns there are."""
        return len(self.names)

    def place(self, name: str) -> int:
        """Where a column is."""
        return self._places[name]

    def of(self, array: Any, name: str) -> Any:
        """One column of a tensor or array, `(..., width)` to `(...)`; of a row its number."""
        place = self._places[name]
        return array[place] if array.ndim == 1 else array[..., place]

    def span(self, array: Any, first: str, last: str) -> Any:
        """Neighbouring columns, both ends included: `(..., width)` to `(..., K)`."""
        return array[..., self._places[first] : self._places[last] + 1]

    def pair(self, array: Any, name: str) -> Any:
        """The columns `forward_NAME` and `backward_NAME`, which are neighbours: `(..., 2)`."""
        return self.span(array, f"forward_{name}", f"backward_{name}")

    def row(self, values: Mapping[str, float], dtype: Any = np.float64) -> np.ndarray:
        """A row `(width,)` from values by name; every column must have one, and no other may."""
        if values.keys() != self._places.keys():
            wrong = sorted(values.keys() ^ self._places.keys())
            raise ValueError(f"{self.scope}: columns without or beyond values: {', '.join(wrong)}")
        return np.array([values[name] for name in self.names], dtype=dtype)


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
# Number formats that behave alike: half precision with and without matrix units differ.
NUMBER_FORMATS = ("fp32", "tf32", "half_matrix", "half_plain", "fp64", "cpu")
# Versions of PyTorch at which host cost or kernels changed: cuDNN 8 API (1.8), cuDNN 8.3 with
# other channels-last kernels (1.12), foreach optimizers and fused attention (2.0), later compilers
# (2.4, 2.8).
ERAS = ((1, 8), (1, 12), (2, 0), (2, 4), (2, 8))
# Sources of operators timed alone: each adds its own launch and synchronisation to every time.
FLOORS = (
    "neusight", "vidur", "eleutherai-sizing", "deepbench", "mamf", "ml-performance-prediction",
)  # fmt: skip


def size_log(value: float) -> float:
    """How sizes enter the columns: logarithm to base 2 of one more, in eighths."""
    return math.log2(1.0 + max(value, 0.0)) / 8.0


def _flag(name: str, origin: str = "") -> Field:
    return Field(name, transform="flag", origin=origin)


def _size(name: str, origin: str) -> Field:
    return Field(name, transform="size", origin=origin)


NUMBERS = (
    _size("log_batch", "products of a batched matrix product; groups of a convolution"),
    _size("log_rows", "rows of the product, or of the tensor a call works on"),
    _size("log_cols", "columns of the product, or contiguous elements"),
    _size("log_inner", "summed length of the product"),
    _size("log_kernel", "positions of a convolution's kernel"),
    Field("half_stride", transform="/ 2", origin="stride of a convolution"),
    _flag("cols_by_8", "columns of a product that matrix units take whole"),
    _flag("inner_by_8", "summed length that matrix units take whole"),
    _flag("is_depthwise", "one channel out of each group"),
    _flag("is_grouped", "several groups of several channels"),
    _flag("is_pointwise_conv", "1 x 1 convolution"),
    _size("log_out", "elements of the output"),
    _size("log_in_per_out", "elements of all inputs over those of the output"),
    Field("inputs", transform="/ 4, at most 2", origin="input tensors"),
    _flag("broadcasts", "pointwise call on inputs of different sizes"),
    _flag("inplace", "writes into its input"),
    _flag("has_bias", "convolution with bias"),
    _flag("copies", "view that copies"),
    _flag("differentiable", "autograd runs a backward pass for it"),
    _flag("needs_input_grad", "a gradient flows to an activation"),
    _flag("needs_weight_grad", "a gradient flows to a parameter"),
    _flag("training", "norm or dropout in training mode"),
    Field("rank", transform="/ 4", origin="dimensions of the output"),
    Field("item_in", "byte", "/ 4", "an element of the first input"),
    Field("item_out", "byte", "/ 4", "an element of the first output"),
    Field("casts", transform="/ 2", origin="inputs that autocast converts"),
    Field("log_intensity", "FLOP/byte", "size", "arithmetic over memory traffic"),
    _size("log_channels", "channels of the output"),
    _flag("small_channels", "product with fewer than 32 columns"),
    Field("dilation", transform="- 1", origin="dilation of a convolution"),
    _flag("last_in_plain", "input lies channels-last in a network that runs in the plain layout"),
    _flag("converts_in_plain", "input has to be laid out anew there"),
    _flag("last_in_last", "input lies channels-last in a network that runs channels-last"),
    _flag("converts_in_last", "input has to be laid out anew there"),
    Field("taps", transform="log2 / 8", origin="multiply-adds per output of a grouped convolution"),
    _flag("per_sample", "grouped convolution whose weights are activations"),
    _flag("group_power_of_2", "groups 2, 4, 8, ... channels wide"),
    Field("pad_rows_128", transform="log2 / 4", origin="growth of rows to whole tiles of 128"),
    Field("pad_cols_32", transform="log2 / 4", origin="growth of columns to tiles of 32"),
    Field("pad_cols_64", transform="log2 / 4", origin="growth of columns to tiles of 64"),
    Field("pad_cols_128", transform="log2 / 4", origin="growth of columns to tiles of 128"),
    Field("pad_inner_32", transform="log2 / 4", origin="growth of the summed length to 32"),
    _size("log_space", "positions of an image"),
    _flag("width_by_4", "rows of an image hold whole vectors of 4"),
    _flag("width_by_8", "rows of an image hold whole vectors of 8"),
    _flag("channels_by_8", "channels hold whole vectors of 8"),
    _flag("beyond_32_bit", "a tensor has 2^31 elements or more"),
    _flag("fused_reads", "a compiler reads the input within the kernel that made it"),
    Field("fused_share", transform="", origin="share of the traffic that a compiler saves"),
)

NODE = Table(
    "a call",
    [Field(f"kind_{kind}", transform="one-hot", origin="tracing.costs.vocab") for kind in KINDS]
    + list(NUMBERS),
)
WORK = Table(
    "a call's work",
    [
        Field("forward_flops", "FLOP", origin="tracing.costs.formulas"),
        Field("backward_flops", "FLOP", origin="tracing.costs.formulas"),
        Field("forward_bytes", "byte", origin="encoding.work, conversions and copies included"),
        Field("backward_bytes", "byte", origin="encoding.work, conversions included"),
        Field("forward_kernels", origin="kernels launched without fusion"),
        Field("backward_kernels", origin="kernels launched without fusion"),
        Field("forward_calls", origin="operators that the host dispatches"),
        Field("backward_calls", origin="operators that autograd dispatches"),
    ],
)
EDGE = Table(
    "an edge",
    [
        Field("into_consumer", origin="tensors along it, over one call of the consumer's class"),
        Field("out_of_producer", origin="tensors along it, over one call of the producer's class"),
        Field("log_size", "byte", "log2 / 16", "the tensor, with one more byte"),
    ],
)
TOTALS = Table(
    "a graph",
    [
        Field("trainable_tensors", origin="parameters with a gradient"),
        Field("trainable_numel", origin="their elements"),
        Field("parameter_bytes", "byte", origin="all parameters as stored"),
        Field("input_bytes", "byte", origin="the batch"),
        Field("view_calls", origin="calls that return their input or a view of it"),
        Field("batch", origin="samples of an iteration"),
        _flag("compiles_to_channels_last", "encoding.layout"),
    ],
)
DEVICE = Table(
    "a device in a number format",
    [
        Field("log_peak", "FLOP/s", "log", "catalogue.rates: what kernels can reach at most"),
        Field("log_sustained", "FLOP/s", "log", "catalogue.rates: per clock and multiprocessor"),
        Field("log_power", "FLOP/s", "log", "catalogue.rates: what the power limit allows"),
        Field("log_bandwidth", "byte/s", "log", "data sheet"),
        Field("log_multiprocessors", "", "log", "data sheet"),
        Field("log_l2", "byte", "log", "data sheet"),
        Field("log_clock", "Hz", "log", "data sheet: boost clock"),
        Field("year", "year", "- 2019", "launch"),
        _flag("is_cpu", "kind of the device"),
        _flag("is_amd", "vendor"),
        Field("log_pcie", "byte/s", "log", "data sheet"),
        Field("log_issue", "byte/s", "log", "catalogue.rates: multiprocessors and clock"),
        Field("log_early_fp64", "FLOP/s", "log", "catalogue.rates: float64 of early libraries"),
        _flag("early_fp64", "float64 on a chip that early libraries were slow on"),
    ],
)
RUN = Table(
    "a way to run",
    [
        _flag("channels_last", "workload"),
        _flag("compiled", "workload"),
        _flag("fp32", "computes in float32"),
        _flag("tf32", "computes in TensorFloat-32"),
        _flag("half", "half precision, by autocast or throughout"),
        _flag("fp64", "workload"),
        _flag("train", "workload"),
        _flag("cudnn_benchmark", "workload"),
        *(_flag(f"since_{a}_{b}", "version of PyTorch") for a, b in ERAS),
        _flag("unknown_version", "no version of PyTorch"),
        _flag("is_cpu", "kind of the device"),
        _flag("is_amd", "vendor"),
        _flag("half_plain", "half precision without matrix units"),
        _flag("half_fallback", "half precision for which libraries have no kernels"),
    ],
)
PHASES = Table(
    "what is timed",
    [
        _flag(name, "workload")
        for name in ("forward", "loss", "backward", "optimizer", "zero_grad", "h2d")
    ],
)
STEP = Table(
    "an optimizer step",
    [
        Field("optimizer_bytes", "byte", origin="workload.optimizers: tensors read and written"),
        Field("optimizer_kernels", origin="workload.optimizers"),
        Field("zero_grad_bytes", "byte", origin="gradients that are filled with zeros"),
        Field("zero_grad_kernels", origin="one for each gradient"),
        Field("input_bytes", "byte", origin="the batch that is copied to the device"),
    ],
)
LATENTS = Table(
    "which latents a row has",
    [
        Field(name, origin="encoding.latents: position in the table, 0 for none")
        for name in ("device", "host", "framework")
    ],
)
TABLES = {
    "node": NODE, "work": WORK, "edge": EDGE, "totals": TOTALS, "device": DEVICE, "run": RUN,
    "phases": PHASES, "step": STEP, "latents": LATENTS,
}  # fmt: skip


def schema() -> dict[str, list[str]]:
    """The names of all columns, operators and number formats, as weights keep them."""
    names = {name: list(table.names) for name, table in TABLES.items()}
    words = {"operators": OPERATORS, "number_formats": NUMBER_FORMATS, "floors": FLOORS}
    return names | {name: list(values) for name, values in words.items()}
