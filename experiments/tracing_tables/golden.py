"""Hand-counted FLOPs where PyTorch's own counter is wrong on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from experiments.shared.ledger import Row
from experiments.tracing_tables.common import Study, counted
from experiments.tracing_tables.flops import seen_by_counter
from experiments.tracing_tables.kinds.layers import Fn
from tracing import trace


def _depthwise() -> nn.Module:
    return nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)


def _grouped() -> nn.Module:
    return nn.Conv2d(8, 16, 3, padding=1, groups=4, bias=False)


def _fused(**options: Any) -> Callable[[], nn.Module]:
    return lambda: Fn(lambda _, q, k, v: F.scaled_dot_product_attention(q, k, v, **options))


def _lstm(**options: Any) -> nn.Module:
    return nn.LSTM(12, 16, batch_first=True, **options)


def _complex() -> nn.Module:
    return Fn(lambda _, a, b: torch.view_as_real(a @ b))


def _encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()


def _qkv(heads: int, shared: int, length: int, size: int) -> tuple[torch.Tensor, ...]:
    shapes = ((1, heads, length, size), *[(1, shared, length, size)] * 2)
    return tuple(torch.randn(shape, requires_grad=True) for shape in shapes)


# Name: the model, its inputs, forward and backward FLOPs by hand, and how they are made up.
CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], int, int, str]] = {
    "depthwise convolution": (
        _depthwise,
        lambda: (torch.randn(1, 8, 16, 16),),
        36_864,
        36_864,
        "2*16*16*8*9; the weight's gradient costs as much",
    ),
    "grouped convolution": (
        _grouped,
        lambda: (torch.randn(1, 8, 16, 16, requires_grad=True),),
        147_456,
        294_912,
        "2*16*16*16*(8/4)*9; two gradients",
    ),
    "fused attention": (
        _fused(),
        lambda: _qkv(12, 12, 64, 64),
        12_582_912,
        31_457_280,
        "4*12*64*64*64; the flash kernel's backward computes five products for two",
    ),
    "grouped-query attention": (
        _fused(enable_gqa=True),
        lambda: _qkv(8, 2, 128, 64),
        33_554_432,
        83_886_080,
        "4*8*128*128*64: the heads of the query count",
    ),
    "LSTM": (
        _lstm,
        lambda: (torch.randn(2, 10, 12),),
        71_680,
        71_680 + 9 * 2 * 2 * 64 * 16,
        "2*20*4*16*(12+16); weights' gradients, and the state's for all steps but the first",
    ),
    "LSTM with projection": (
        lambda: _lstm(proj_size=4),
        lambda: (torch.randn(2, 10, 12),),
        2 * 20 * (64 * 12 + 64 * 4 + 16 * 4),
        2 * 20 * (64 * 12 + 64 * 4 + 16 * 4) + 9 * 2 * 2 * 64 * 4 + 2 * 20 * 16 * 4,
        "as above with a state of 4 and a third weight, whose input always needs its gradient",
    ),
    "encoder layer in evaluation mode": (
        _encoder,
        lambda: (torch.randn(2, 5, 16),),
        44_160,
        2 * 44_160 - 2 * 10 * 16 * 48 + 1_600,
        "15,360 + 3,200 + 5,120 + 20,480; backward twice that without the first input, "
        "five products for attention's two",
    ),
    "complex product": (
        _complex,
        lambda: tuple(
            torch.randn(s, dtype=torch.complex64, requires_grad=True) for s in ((3, 4), (4, 5))
        ),
        480,
        960,
        "four real products of 2*3*4*5",
    ),
}


def row(name: str) -> Row:
    """Ours, the counter's and the hand's figures."""
    build, inputs, forward, backward, why = CASES[name]
    graph = trace(build(), inputs(), loss="none")
    ours = graph.total_flops, graph.total_backward_flops
    counter = seen_by_counter(build(), inputs(), {})
    return {
        "verdict": "equal to the hand's" if ours == (forward, backward) else "differs",
        "by_hand_forward": forward,
        "by_hand_backward": backward,
        "forward": ours[0],
        "backward": ours[1],
        "counter_forward": counter[0],
        "counter_backward": counter[1],
        "counter": "right" if counter == (forward, backward) else "wrong",
        "how": why,
    }


def summary(table: list[Row]) -> list[str]:
    """How many agree with the hand."""
    return [*counted(table, "verdict"), *(f"counter {line}" for line in counted(table, "counter"))]


STUDY = Study("golden", lambda: list(CASES), row, summary)
