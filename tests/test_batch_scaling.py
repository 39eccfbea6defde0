"""One trace serves every batch size: scaled graphs equal fresh traces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from tracing import BATCH_MARKER, OpGraph, trace


class Windows(nn.Module):
    """Batch and positions mixed in one dimension, as in window attention."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, h, w, c = x.shape
        x = x.view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
        x = self.lin(x)
        return x.reshape(b, h * w * c).roll(1, 1)


class Pairs(nn.Module):
    """All pairs in a batch: sizes grow with its square."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ x.T).softmax(-1).flatten()


class Token(nn.Module):
    """A learned token in front of every sample."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 8))
        self.lin = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        return self.lin(x[:, 0])


def conv_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(True), nn.MaxPool2d(2), nn.Dropout(0.1),
        nn.Flatten(), nn.Linear(72, 4),
    )  # fmt: skip


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "conv": (conv_net, (3, 8, 8)),
    "windows": (Windows, (4, 6, 4)),
    "pairs": (Pairs, (7,)),
    "token": (Token, (5, 8)),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (5, 8)),
    "lstm": (lambda: nn.LSTM(8, 4, 2, batch_first=True, bidirectional=True), (5, 8)),
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), (4,)),
}


def plain(graph: OpGraph) -> OpGraph:
    return replace(graph, probe=None, retrace=None)


def image(batch: int, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.zeros(batch, *shape, device="meta")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("backend", ["export", "record"])
def test_scaled_equals_fresh(name: str, backend: str) -> None:
    build, shape = MODELS[name]
    with torch.device("meta"):
        model = build()
    first = trace(model, (image(4, shape),), backend=backend)
    marked = trace(model, (image(BATCH_MARKER, shape),), backend=backend)
    for size in (1, 2, 3, 16, 257):
        if size == 1 and name == "conv":
            continue
        fresh = plain(trace(model, (image(size, shape),), backend=backend))
        for scaled in (first.with_batch_size(size), marked.with_batch_size(size)):
            assert scaled.batch_size == size
            assert costs(scaled) == costs(fresh)
            if size > 1:  # a batch of one makes some copies needless
                assert plain(scaled) == fresh


def costs(graph: OpGraph) -> tuple[int, int, int]:
    return graph.total_flops, graph.total_backward_flops, graph.total_params


def test_scaling_is_fast_and_comes_back() -> None:
    graph = trace(conv_net(), (torch.zeros(4, 3, 8, 8),))
    again = graph.with_batch_size(64).with_batch_size(4)
    assert plain(again) == plain(graph)
    assert graph.with_batch_size(4) is graph


def test_a_size_that_equals_the_batch_by_chance_stays() -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 8))
    graph = trace(model, (torch.zeros(8, 8, 8, 8),)).with_batch_size(3)
    assert graph.nodes[0].input_specs[0].shape == (3, 8, 8, 8)
    assert graph.nodes[0].input_specs[1].shape == (8, 8, 3, 3)
    assert graph.nodes[-2].output.shape == (3, 8)
