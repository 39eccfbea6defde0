"""FLOPs against PyTorch's own counter over forward and backward of real runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tracing import trace


def counted(model: nn.Module, args: tuple[Any, ...]) -> tuple[int, int]:
    """Forward and backward FLOPs that the counter sees."""
    with FlopCounterMode(display=False) as forward:
        out = model(*args)
    tensors = out if isinstance(out, tuple) else (out,)
    loss = sum(t.float().sum() for t in tensors if t.requires_grad)
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


class Eager(nn.Module):
    """Attention from plain products."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(-2, -1)).softmax(-1)
        return self.out((scores @ v).transpose(1, 2).reshape(b, n, c))


class Einsum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.einsum("bnc,cd->bnd", x, self.w)
        return torch.einsum("bnd,bmd->bnm", y, y)


def conv_net(**options: Any) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, **options), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


def frozen() -> nn.Module:
    net = conv_net()
    net[3].requires_grad_(False)
    return net


def frozen_states() -> nn.Module:
    """The states' weights of the second layer are not trained, but what flows through them is."""
    net = nn.GRU(16, 4, 2, batch_first=True)
    for weight in (net.weight_hh_l1, net.bias_hh_l1, net.weight_ih_l0, net.bias_ih_l0):
        weight.requires_grad_(False)
    return net


def trained_above() -> nn.Module:
    """Nothing below the second layer asks for a gradient."""
    net = nn.GRU(16, 4, 2, batch_first=True)
    for name, weight in net.named_parameters():
        weight.requires_grad_(name == "weight_ih_l1")
    return net


IMAGE, TEXT = (2, 3, 9, 9), (2, 5, 16)
MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "conv": (conv_net, IMAGE),
    "stride": (lambda: conv_net(stride=2, padding=1), IMAGE),
    "dilation": (lambda: conv_net(dilation=2), IMAGE),
    "frozen": (frozen, IMAGE),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 3, 2), nn.ReLU()), IMAGE),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(5, 8, 3), nn.Conv1d(8, 4, 3)), TEXT),
    "conv3d": (lambda: nn.Conv3d(3, 4, 2), (2, 3, 4, 5, 6)),
    "mlp": (lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), TEXT),
    "no bias": (lambda: nn.Sequential(nn.Linear(16, 8, bias=False), nn.Linear(8, 4)), TEXT),
    "eager attention": (Eager, TEXT),
    "einsum": (Einsum, TEXT),
    "recurrent": (lambda: nn.GRU(16, 4, 2, bidirectional=True), TEXT),
    "recurrent, frozen": (frozen_states, TEXT),
    "recurrent, trained above": (trained_above, TEXT),
    "unet": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.Upsample(scale_factor=2), nn.Conv2d(8, 3, 3)
        ),
        IMAGE,
    ),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("grad", [False, True])
def test_agreement(name: str, grad: bool) -> None:
    build, shape = MODELS[name]
    model, x = build(), torch.randn(shape, requires_grad=grad)
    graph = trace(model, (x,), loss="none")
    assert (graph.total_flops, graph.total_backward_flops) == counted(model, (x,))


@pytest.mark.filterwarnings("ignore")
def test_table_where_weights_are_computed_and_where_code_reads_values() -> None:
    from experiments.tracing_tables.common import attempt
    from experiments.tracing_tables.flops import GROUPED, STUDY

    assert attempt(STUDY, "timm:dm_nfnet_f0")["verdict"] == GROUPED
    assert attempt(STUDY, "transformers:gpt2")["verdict"] == "equal"


@pytest.mark.slow
def test_agreement_on_whole_models() -> None:
    from experiments.tracing_tables.common import make
    from experiments.tracing_tables.flops import GROUPED, NAMES, STUDY

    assert len(NAMES) >= 100
    wrong = [row for row in make(STUDY, NAMES) if row.get("verdict") not in ("equal", GROUPED)]
    assert not wrong
