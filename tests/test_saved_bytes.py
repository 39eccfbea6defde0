"""Bytes kept for the backward pass, against what autograd really keeps on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from prenet_gnn.measuring.memory import saved_for_backward_bytes
from tracing import TensorSpec, trace
from tracing.costs.storages import Kept, saved_bytes
from tracing.costs.timeline import activation_timeline


def conv(inputs: int, outputs: int, size: int = 3, **options: Any) -> nn.Module:
    return nn.Conv2d(inputs, outputs, size, padding=size // 2, **options)


def after_norm(activation: nn.Module) -> nn.Module:
    return nn.Sequential(conv(3, 8), nn.BatchNorm2d(8), activation, conv(8, 4))


class Attention(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.qkv, self.out, self.how = nn.Linear(32, 96), nn.Linear(32, 32), how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, c = x.shape
        if self.how == "chunks":
            q, k, v = (t.view(b, n, 4, 8).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        else:
            q, k, v = self.qkv(x).reshape(b, n, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        if self.how == "fused":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = ((q * 8**-0.5) @ k.transpose(-2, -1)).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, n, c))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.norm, self.relu = (
            conv(3, 8),
            conv(8, 8),
            nn.BatchNorm2d(8),
            nn.ReLU(True),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.a(x))
        y = self.norm(self.b(x))
        y += x
        return self.relu(y)


class Squeeze(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = conv(3, 8), nn.Conv2d(8, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.silu(self.a(x))
        return x * torch.sigmoid(self.b(x.mean((2, 3), keepdim=True)))


class Many(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.scale = nn.Linear(32, 32), nn.Parameter(torch.ones(32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.lin(x) * self.scale + x
        z = y / (1 + y.abs())
        z = torch.cat([torch.where(z > 0, z, -z), y.exp()], -1)
        total = z.masked_fill(z > 1, 0.0).pow(2).mean() + torch.maximum(y, x).sum()
        total = total + y.norm(dim=-1).sum() + y.clamp(-1, 1).sum() + z.max(-1)[0].sum()
        return total + z.topk(3, -1)[0].sum() + y.logsumexp(-1).sum() + y.var(-1).sum()


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.w = nn.Linear(32, 32), nn.Parameter(torch.randn(32, 16))

    def forward(self, x: torch.Tensor) -> Any:
        x = self.lin(x)
        return torch.einsum("bnc,cd->bnd", x, self.w), torch.einsum("bnc,bmc->bnm", x, x)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(32, 32), nn.Linear(32, 8)
        self.body = nn.Sequential(*[nn.Linear(32, 32) for _ in range(4)])
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = checkpoint(self.body, self.first(x), use_reentrant=self.reentrant)
        return self.last(F.gelu(y))


def frozen_first() -> nn.Module:
    model = after_norm(nn.ReLU())
    model[0].requires_grad_(False)
    return model


def stem() -> nn.Module:
    return nn.Sequential(
        conv(3, 8), nn.BatchNorm2d(8), nn.ReLU(True), nn.MaxPool2d(2), conv(8, 8, groups=8),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


POINTWISE = (
    "ReLU GELU SiLU Sigmoid Tanh Hardswish Hardsigmoid ReLU6 LeakyReLU ELU SELU CELU Mish Softplus "
    "LogSigmoid Hardtanh PReLU Softsign Tanhshrink Softshrink Hardshrink"
)
IN_PLACE = "ReLU SiLU Hardswish ReLU6 LeakyReLU ELU SELU CELU Mish Hardsigmoid"
IMAGE, TEXT, ROWS = (4, 3, 16, 16), (2, 10, 32), (8, 32)
ENCODER = {"batch_first": True, "d_model": 32, "nhead": 4, "dim_feedforward": 64}
MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    **{
        name: (
            lambda name=name: nn.Sequential(
                nn.Linear(32, 64), getattr(nn, name)(), nn.Linear(64, 8)
            ),
            ROWS,
        )
        for name in POINTWISE.split()
    },
    **{
        f"{name} in place": (lambda name=name: after_norm(getattr(nn, name)(inplace=True)), IMAGE)
        for name in IN_PLACE.split()
    },
    "GLU": (lambda: nn.Sequential(nn.Linear(32, 64), nn.GLU(), nn.Linear(32, 8)), ROWS),
    "stem": (stem, IMAGE),
    "stem in eval mode": (lambda: stem().eval(), IMAGE),
    "average pool": (lambda: nn.Sequential(conv(3, 8), nn.AvgPool2d(2), conv(8, 8)), IMAGE),
    "group norm": (lambda: nn.Sequential(conv(3, 8), nn.GroupNorm(2, 8), conv(8, 8)), IMAGE),
    "instance norm": (lambda: nn.Sequential(conv(3, 8), nn.InstanceNorm2d(8), conv(8, 8)), IMAGE),
    "layer norm": (lambda: nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32)), TEXT),
    "rms norm": (lambda: nn.Sequential(nn.Linear(32, 32), nn.RMSNorm(32)), TEXT),
    "dropout": (lambda: nn.Sequential(nn.Linear(32, 64), nn.Dropout(0.1), nn.Linear(64, 8)), TEXT),
    "no dropout": (lambda: nn.Sequential(nn.Linear(32, 64), nn.Dropout(0), nn.Linear(64, 8)), TEXT),
    "channel dropout": (lambda: nn.Sequential(conv(3, 8), nn.Dropout2d(0.2), conv(8, 8)), IMAGE),
    "encoder": (lambda: nn.TransformerEncoderLayer(dropout=0.0, **ENCODER), TEXT),
    "encoder, dropout": (lambda: nn.TransformerEncoderLayer(norm_first=True, **ENCODER), TEXT),
    "transposed": (
        lambda: nn.Sequential(
            nn.ConvTranspose2d(3, 8, 2, 2), nn.Upsample(scale_factor=2), conv(8, 4)
        ),
        IMAGE,
    ),
    "1-d": (
        lambda: nn.Sequential(
            nn.Conv1d(10, 8, 3), nn.BatchNorm1d(8), nn.MaxPool1d(2), nn.Conv1d(8, 4, 3)
        ),
        TEXT,
    ),
    "3-d": (lambda: nn.Sequential(nn.Conv3d(3, 8, 3), nn.ReLU(), nn.MaxPool3d(2)), (2, 3, 8, 8, 8)),
    "attention": (lambda: Attention("products"), TEXT),
    "attention of chunks": (lambda: Attention("chunks"), TEXT),
    "fused attention": (lambda: Attention("fused"), TEXT),
    "residual": (Residual, IMAGE),
    "squeeze": (Squeeze, IMAGE),
    "many": (Many, TEXT),
    "products": (Products, TEXT),
    "frozen": (frozen_first, IMAGE),
    "checkpoint": (lambda: Checkpointed(False), TEXT),
    "reentrant checkpoint": (lambda: Checkpointed(True), TEXT),
}


@pytest.mark.parametrize("name", MODELS)
def test_against_autograd(name: str) -> None:
    build, shape = MODELS[name]
    model, x = build(), torch.randn(shape)
    graph = trace(model, (x,), loss="none")
    assert saved_bytes(graph, "cpu") == pytest.approx(
        saved_for_backward_bytes(model, lambda: model(x)), rel=0.02
    )


def test_there_are_enough_models() -> None:
    assert len(MODELS) >= 40


@pytest.mark.slow
def test_whole_models() -> None:
    from experiments.tracing_tables.common import make
    from experiments.tracing_tables.saved import LIMIT_PERCENT, NAMES, STUDY

    rows = list(make(STUDY, NAMES))
    assert [row for row in rows if abs(row.get("error_percent", 100)) > LIMIT_PERCENT] == []


def test_dropout_keeps_a_byte_for_each_element_on_a_gpu() -> None:
    graph = trace(
        nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), (torch.zeros(8, 4),), loss="none"
    )
    assert saved_bytes(graph) == 8 * 4 * 4 + 8 * 4
    assert saved_bytes(graph, "cpu") == 2 * 8 * 4 * 4
    assert graph.saved_bytes == saved_bytes(graph)


def test_timeline_of_a_chain() -> None:
    """Four linear layers of one size: activations pile up, then gradients take their place."""
    model = nn.Sequential(*[nn.Linear(16, 16, bias=False) for _ in range(4)])
    graph = trace(model, (torch.zeros(32, 16),), loss="none")
    timeline = activation_timeline(graph)
    one, weight = 32 * 16 * 4, 16 * 16 * 4
    forward = [m.bytes for m in timeline.moments if m.phase == "forward"]
    assert forward == [one, 2 * one, 3 * one, 4 * one]
    assert timeline.saved_bytes == 3 * one
    assert timeline.input_bytes == one
    backward = [m for m in timeline.moments if m.phase == "backward"]
    assert [m.gradient_bytes for m in backward] == [weight, 2 * weight, 3 * weight, 4 * weight]
    # three saved and the gradient of the last input; each later step frees one saved tensor
    assert [m.activation_bytes for m in backward] == [4 * one, 4 * one, 3 * one, one]
    assert timeline.peak.bytes == 4 * one + 2 * weight


def test_a_precision_changes_sizes() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    graph = trace(model, (torch.zeros(32, 16),), loss="none")

    def half(_: Any, spec: TensorSpec) -> int:
        return spec.bytes // 2

    full, halved = activation_timeline(graph), activation_timeline(graph, half)
    assert [2 * m.bytes for m in halved.moments] == [m.bytes for m in full.moments]
    assert 2 * halved.saved_bytes == full.saved_bytes


def test_inference_keeps_nothing() -> None:
    model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(6)]).eval()
    timeline = activation_timeline(trace(model, (torch.zeros(32, 16),)))
    assert timeline.saved_bytes == 0
    assert timeline.peak.bytes == 2 * 32 * 16 * 4


def test_a_checkpointed_region_comes_back_in_the_backward_pass() -> None:
    graph = trace(Checkpointed(False), (torch.zeros(2, 10, 32),), loss="none")
    plain = trace(
        nn.Sequential(*[nn.Linear(32, 32) for _ in range(5)]),
        (torch.zeros(2, 10, 32),),
        loss="none",
    )
    timeline = activation_timeline(graph)
    assert timeline.saved_bytes < activation_timeline(plain).saved_bytes
    assert timeline.peak.phase == "backward"


def test_autocast_shares_copies_of_weights_alone() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.lin = nn.LayerNorm(16), nn.Linear(16, 16, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.norm(x)
            return self.lin(x) + self.lin(x)

    graph = trace(Twice(), (torch.zeros(8, 16),), loss="none")
    half = Kept(graph, casts=lambda node, i: node.input_specs[i].bytes // 2 * (node.op == "linear"))
    copies = sorted(size for key, size in half.all.items() if key[0] == "cast")
    # each call converts the activation anew, and the weight is converted once
    assert copies == [8 * 16 * 2] * 2 + [16 * 16 * 2]
