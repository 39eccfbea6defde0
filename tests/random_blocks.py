"""Random layers for models that tests draw; each is a function of a drawing and a sample's shape.

A shape without its batch is an image `(C, H, W)`, a sequence `(T, C)` or a row `(C,)`. A block
returns None where its layer cannot take the shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

Draw = Callable[[st.SearchStrategy[Any]], Any]
Shape = tuple[int, ...]
Block = Callable[[Draw, Shape], nn.Module | None]

PLAIN = "ReLU GELU SiLU Sigmoid Tanh Hardswish LeakyReLU ELU Softplus Mish Softsign PReLU".split()
# In place these need no more of their input than a copy that autograd makes itself.
IN_PLACE = "ReLU SiLU Hardswish LeakyReLU ELU Mish".split()


def one_of(*values: Any) -> st.SearchStrategy[Any]:
    """One of these values."""
    return st.sampled_from(values)


def width() -> st.SearchStrategy[int]:
    """A number of channels, odd ones and one included."""
    return one_of(8, 6, 4, 3, 12, 5, 7, 1)


class Apply(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor], name: str) -> None:
        """Keeps the function and the name that a failing example is shown with."""
        super().__init__()
        self.function, self.name = function, name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Calls the function."""
        return self.function(x)

    def extra_repr(self) -> str:
        """The name."""
        return self.name


class Residual(nn.Module):
    """A layer whose result is added to its input, in place or not."""

    def __init__(self, layer: nn.Module, in_place: bool) -> None:
        """Takes a layer that keeps its shape."""
        super().__init__()
        self.layer, self.in_place = layer, in_place

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Adds."""
        y = self.layer(x)
        if self.in_place:
            y += x
            return y
        return x + y


class Twice(nn.Module):
    """One layer, called two times: its weights are shared."""

    def __init__(self, layer: nn.Module) -> None:
        """Takes a layer that keeps its shape."""
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Calls it twice."""
        return self.layer(torch.sin(self.layer(x)))


class Joined(nn.Module):
    """Two layers side by side, joined along the channels."""

    def __init__(self, first: nn.Module, second: nn.Module, dim: int) -> None:
        """Takes layers whose results agree but for the channels."""
        super().__init__()
        self.first, self.second, self.dim = first, second, dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Concatenates."""
        return torch.cat([self.first(x), self.second(x)], self.dim)


class Squeeze(nn.Module):
    """Channels weighted by what the whole image shows."""

    def __init__(self, channels: int) -> None:
        """Makes the gate."""
        super().__init__()
        self.gate = nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiplies by the gate."""
        return x * torch.sigmoid(self.gate(x.mean((2, 3), keepdim=True)))


class Attention(nn.Module):
    """Self-attention as plain products or as one fused operator."""

    def __init__(self, channels: int, heads: int, fused: bool, bias: bool) -> None:
        """Makes the projections."""
        super().__init__()
        self.heads, self.fused = heads, fused
        self.qkv = nn.Linear(channels, 3 * channels, bias=bias)
        self.out = nn.Linear(channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attends."""
        b, t, c = x.shape
        parts = self.qkv(x).reshape(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Recurrent(nn.Module):
    """A recurrent layer without its last states."""

    def __init__(self, layer: nn.Module) -> None:
        """Takes the layer."""
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Gives the states of all steps."""
        out: torch.Tensor = self.layer(x)[0]
        return out


def activation(draw: Draw, shape: Shape) -> nn.Module:
    """A pointwise function, in place or not."""
    if draw(st.booleans()):
        module: nn.Module = getattr(nn, draw(one_of(*IN_PLACE)))(inplace=True)
        return module
    module = getattr(nn, draw(one_of(*PLAIN)))()
    return module


def arithmetic(draw: Draw, shape: Shape) -> nn.Module:
    """Plain arithmetic with a tensor and a number."""
    name = draw(one_of("x * 0.5", "x + 1", "x / 3", "x - x.mean(-1, keepdim=True)", "x.abs()",
                       "x.exp()", "x ** 2", "x.clamp(-1, 1)", "x.softmax(-1)", "x.cumsum(-1)",
                       "torch.where(x > 0, x, -x)", "x * torch.sigmoid(x)", "x.roll(1, -1)",
                       "x.flip(-1)", "x.masked_fill(x > 1, 0.0)", "x.to(x.dtype)"))  # fmt: skip
    return Apply(eval(f"lambda x: {name}", {"torch": torch}), name)


def dropout(draw: Draw, shape: Shape) -> nn.Module:
    """Dropout that drops something or nothing."""
    return nn.Dropout(draw(one_of(0.1, 0.0)))


def conv(draw: Draw, shape: Shape) -> nn.Module | None:
    """A convolution of images: grouped, dilated, strided, with uneven kernels."""
    c, h, w = shape
    groups = draw(st.sampled_from([g for g in (1, 2, 3, c) if c % g == 0]))
    out = groups * draw(one_of(1, 2, 3, 4))
    kernel = (draw(one_of(3, 1, 2, 5)), draw(one_of(3, 1, 2)))
    dilation, padding = draw(one_of(1, 1, 2)), draw(one_of(1, 0, 2))
    if any(s + 2 * padding < dilation * (k - 1) + 1 for s, k in zip((h, w), kernel, strict=True)):
        return None
    return nn.Conv2d(c, out, kernel, draw(one_of(1, 2)), padding, dilation, groups,
                     draw(st.booleans()))  # fmt: skip


def conv_transpose(draw: Draw, shape: Shape) -> nn.Module | None:
    """A transposed convolution."""
    c, h, w = shape
    if h * w > 200:
        return None
    groups = draw(st.sampled_from([g for g in (1, 2) if c % g == 0]))
    return nn.ConvTranspose2d(
        c, groups * draw(one_of(1, 2, 3)), draw(one_of(2, 3)), draw(one_of(1, 2)), groups=groups,
        bias=draw(st.booleans()),
    )  # fmt: skip


def same_conv(draw: Draw, shape: Shape) -> nn.Module:
    """A convolution that keeps the shape, in one of the ways to use it."""
    c = shape[0]
    layer = nn.Conv2d(c, c, 3, padding=1, bias=draw(st.booleans()))
    return _reused(draw, layer, nn.Conv2d(c, draw(width()), 1), 1)


def same_linear(draw: Draw, shape: Shape) -> nn.Module:
    """A linear layer that keeps the shape, in one of the ways to use it."""
    c = shape[-1]
    layer = nn.Linear(c, c, bias=draw(st.booleans()))
    return _reused(draw, layer, nn.Linear(c, draw(width())), -1)


def _reused(draw: Draw, layer: nn.Module, other: nn.Module, dim: int) -> nn.Module:
    how = draw(one_of("added", "added in place", "twice", "joined"))
    if how == "twice":
        return Twice(layer)
    if how == "joined":
        return Joined(layer, other, dim)
    return Residual(layer, how == "added in place")


def image_norm(draw: Draw, shape: Shape) -> nn.Module | None:
    """Batch, group or instance norm."""
    c, h, w = shape
    kind = draw(one_of("batch", "group", "instance"))
    if kind == "batch":
        return nn.BatchNorm2d(c, affine=draw(st.booleans()))
    if h * w < 2:
        return None
    if kind == "group":
        return nn.GroupNorm(draw(st.sampled_from([g for g in (1, 2, 3) if c % g == 0])), c)
    return nn.InstanceNorm2d(c, affine=draw(st.booleans()))


def pool(draw: Draw, shape: Shape) -> nn.Module | None:
    """A pooling or a resizing of images."""
    if min(shape[1:]) < 3:
        return nn.Upsample(scale_factor=draw(one_of(2, 3)))
    return draw(one_of(nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2),
                       nn.MaxPool2d(3, 1, 1), nn.AdaptiveMaxPool2d(2)))  # fmt: skip


def squeeze(draw: Draw, shape: Shape) -> nn.Module:
    """Channel attention."""
    return Squeeze(shape[0])


def linear(draw: Draw, shape: Shape) -> nn.Module:
    """A linear layer over the last dimension."""
    return nn.Linear(shape[-1], draw(width()), bias=draw(st.booleans()))


def row_norm(draw: Draw, shape: Shape) -> nn.Module | None:
    """A norm over the last dimension."""
    if shape[-1] < 2:
        return None
    return draw(one_of(nn.LayerNorm, nn.RMSNorm))(shape[-1])  # type: ignore[no-any-return]


def batch_norm(draw: Draw, shape: Shape) -> nn.Module:
    """Batch norm of rows."""
    return nn.BatchNorm1d(shape[-1])


def attention(draw: Draw, shape: Shape) -> nn.Module | None:
    """Self-attention."""
    heads = draw(one_of(2, 1, 4))
    if shape[-1] % heads:
        return None
    return Attention(shape[-1], heads, draw(st.booleans()), draw(st.booleans()))


def encoder(draw: Draw, shape: Shape) -> nn.Module | None:
    """A layer of the library's transformer."""
    if shape[-1] % 2:
        return None
    return nn.TransformerEncoderLayer(
        shape[-1], 2, 2 * shape[-1] + 1, draw(one_of(0.0, 0.1)), batch_first=True,
        norm_first=draw(st.booleans()),
    )  # fmt: skip


def recurrent(draw: Draw, shape: Shape) -> nn.Module:
    """A recurrent layer: several layers, both directions, with and without bias."""
    kind = draw(one_of(nn.LSTM, nn.GRU, nn.RNN))
    return Recurrent(
        kind(
            shape[-1], draw(one_of(4, 3, 6)), draw(one_of(1, 2)), bias=draw(st.booleans()),
            bidirectional=draw(st.booleans()), batch_first=True,
        )
    )  # fmt: skip


def conv1d(draw: Draw, shape: Shape) -> nn.Module | None:
    """A convolution along the sequence."""
    t, c = shape
    kernel = draw(one_of(3, 1, 2))
    if t < kernel:
        return None
    layer = nn.Conv1d(c, draw(width()), kernel, bias=draw(st.booleans()))
    return nn.Sequential(
        Apply(lambda x: x.transpose(1, 2), "x.transpose(1, 2)"), layer,
        Apply(lambda x: x.transpose(1, 2), "x.transpose(1, 2)"),
    )  # fmt: skip


COMMON: tuple[Block, ...] = (activation, arithmetic, dropout)
# Blocks by number of dimensions and by family.
CONVOLUTIONAL: dict[int, tuple[Block, ...]] = {
    3: (conv, same_conv, image_norm, pool, squeeze, conv_transpose, *COMMON),
    2: (conv1d, row_norm, *COMMON),
    1: (linear, same_linear, batch_norm, *COMMON),
}
RECURRENT: dict[int, tuple[Block, ...]] = {
    3: (conv, pool),
    2: (recurrent, linear, row_norm, *COMMON),
    1: (linear, *COMMON),
}
ATTENTION: dict[int, tuple[Block, ...]] = {
    3: (conv, same_conv),
    2: (attention, encoder, linear, same_linear, row_norm, *COMMON),
    1: (linear, row_norm, *COMMON),
}
MIXED = {
    n: tuple(dict.fromkeys((*CONVOLUTIONAL[n], *RECURRENT[n], *ATTENTION[n]))) for n in (3, 2, 1)
}
FAMILIES = {
    "convolutional": CONVOLUTIONAL,
    "recurrent": RECURRENT,
    "attention": ATTENTION,
    "mixed": MIXED,
}
# What every number format of the CPU trains; complex numbers know no order.
COMPLEX: dict[int, tuple[Block, ...]] = dict.fromkeys((1, 2), (linear, same_linear))
