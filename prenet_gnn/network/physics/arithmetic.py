"""Seconds of arithmetic: FLOPs at the rate of their class, and what keeps a kernel from it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from prenet_gnn.encoding.fields import DEVICE, NUMBER_FORMATS, RUN, size_log
from prenet_gnn.network.physics.calls import Calls
from prenet_gnn.network.physics.effects import Effect, register_effect
from tracing.costs.vocab import KINDS

# Kinds whose arithmetic is billed at a rate of its own.
KINDS_OF_CLASS = {
    "conv": "convolution", "conv_transpose": "convolution", "linear": "linear", "matmul": "matmul",
    "attention": "matmul", "rnn": "recurrent",
}  # fmt: skip
# Grouped convolutions run on plain lanes, not on matrix units; all the rest has little arithmetic.
# A 1 x 1 convolution is a plain product; a 3 x 3 one of stride 1 may use Winograd's algorithm, with
# 2.25 times fewer multiplications (Lavin and Gray 2016, arXiv:1509.09308).
CLASSES = (
    "convolution", "linear", "matmul", "recurrent", "grouped", "others", "pointwise", "winograd",
)  # fmt: skip
CONVOLUTIONS = ("convolution", "pointwise", "winograd")
# Rate of half-precision matrix units over that of plain lanes (Ampere's and Ada's data sheets).
MATRIX_OVER_PLAIN = 8.0
MATRIX_FORMATS = ("tf32", "half_matrix")
# Sizes of a tile of a matrix product on a multiprocessor (128 x 64, as CUTLASS and cuDNN use it),
# and the starting weight of tiles that leave multiprocessors idle.
TILE_LOG2, FILL_LOG = 13.0, -1.5
FP64 = NUMBER_FORMATS.index("fp64")
# float64 under an early version, which files that name none had. Only convolutions to many channels
# were slow: over eight cards, from 192 on explains the times of VGG, ResNet, MNASNet, ShuffleNet
# and DenseNet best of 11 limits (`python -m experiments.early_fp64`).
EARLY_CHANNELS = size_log(191.0)


def class_index(name: str) -> int:
    """Position of a class of arithmetic."""
    return CLASSES.index(name)


class Rates(nn.Module):
    """The rates of every class of arithmetic: peak, sustained and power-limited time added up."""

    def __init__(self) -> None:
        """Starts with a third of each; grouped convolutions without matrix units."""
        super().__init__()
        start = torch.full((len(NUMBER_FORMATS), len(CLASSES), 3), math.log(1 / 3))
        for name in MATRIX_FORMATS:
            start[NUMBER_FORMATS.index(name), class_index("grouped")] += math.log(MATRIX_OVER_PLAIN)
        self.logits = nn.Parameter(start)
        classes = [class_index(KINDS_OF_CLASS.get(kind, "others")) for kind in KINDS]
        self.register_buffer("class_of_kind", torch.tensor(classes), persistent=False)
        self.class_of_kind: Tensor

    def rate_class(self, calls: Calls) -> Tensor:
        """The class of every call by its kind: `(M,)`."""
        return self.class_of_kind[calls.kind]

    def forward(self, calls: Calls, rate_class: Tensor) -> Tensor:
        """Seconds per FLOP of every call, `(M, 2)`."""
        number_format = calls.of_row(calls.batch.number_format)
        rates = calls.of_row(DEVICE.span(calls.batch.device, "log_peak", "log_power"))
        logits = self.logits[number_format, rate_class]
        # no float64 is limited by power
        power = logits[:, 2].masked_fill(number_format == FP64, -math.inf)
        logits = torch.cat([logits[:, :2], power[:, None]], dim=-1)
        return (logits - rates).exp().sum(dim=-1)[:, None].expand(-1, 2)


@register_effect("convolution_shapes")
class ConvolutionShapes(Effect):
    """Gives 1 x 1 convolutions and 3 x 3 ones of stride 1 rates of their own."""

    def rate_class(self, calls: Calls, found: Tensor) -> Tensor:
        """Class of every call, `(M,)`."""
        pointwise = calls.spread(calls.number("is_pointwise_conv") > 0)
        found = found.masked_fill(pointwise, class_index("pointwise"))
        return found.masked_fill(calls.spread(_takes_winograd(calls)), class_index("winograd"))


def _takes_winograd(calls: Calls) -> Tensor:
    """Distinct calls that are 3 x 3 convolutions of stride 1 without dilation: `(N,)`."""
    return (
        (calls.number("kind_conv") > 0)
        & ((calls.number("log_kernel") - size_log(3 * 3)).abs() < 1e-4)
        & (calls.number("half_stride") < 0.75)
        & (calls.number("dilation") < 0.75)
    )


@register_effect("grouped_convolutions")
class GroupedConvolutions(Effect):
    """Gives convolutions of several groups a rate of their own."""

    def rate_class(self, calls: Calls, found: Tensor) -> Tensor:
        """Class of every call, `(M,)`."""
        grouped = (calls.number("is_depthwise") != 0) | (calls.number("is_grouped") != 0)
        return found.masked_fill(calls.spread(grouped), class_index("grouped"))


@register_effect("early_float64")
class EarlyFloat64(Effect):
    """float64 convolutions of early libraries, which were slow in the forward pass."""

    def __init__(self) -> None:
        """Starts at what `catalogue.rates` found."""
        super().__init__()
        self.log = nn.Parameter(torch.zeros(len(CLASSES)))

    def inverse_rate(self, calls: Calls, rate_class: Tensor, found: Tensor) -> Tensor:
        """Seconds per FLOP, `(M, 2)`."""
        batch = calls.batch
        old = RUN.of(batch.run, "since_1_8") == 0
        early = calls.of_row((DEVICE.of(batch.device, "early_fp64") > 0) & old)
        early = early & calls.spread(calls.number("log_cols") > EARLY_CHANNELS)
        classes = torch.tensor([class_index(name) for name in CONVOLUTIONS])
        early = early & torch.isin(rate_class, classes)
        slow = (self.log[rate_class] - calls.device("log_early_fp64")).exp()
        return torch.stack([torch.where(early, slow, found[:, 0]), found[:, 1]], dim=-1)


@register_effect("part_waves")
class PartWaves(Effect):
    """Counts partly filled waves of tiles: multiprocessors per tile, large when few are busy."""

    def __init__(self) -> None:
        """Starts with a small weight for every class."""
        super().__init__()
        self.log = nn.Parameter(torch.full((len(CLASSES),), FILL_LOG))

    def arithmetic(self, calls: Calls, rate_class: Tensor, found: Tensor) -> Tensor:
        """Seconds of arithmetic, `(M, 2)`."""
        sizes = calls.number("log_batch") + calls.number("log_rows") + calls.number("log_cols")
        tiles = 8.0 * calls.spread(sizes) - TILE_LOG2
        log = self.log[rate_class] + calls.device("log_multiprocessors")
        waves = (log - math.log(2.0) * tiles).clamp(max=4.0).exp()
        return found * (1.0 + waves[:, None])
