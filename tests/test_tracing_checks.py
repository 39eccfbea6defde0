"""Checks of whole tensors that models make have their answer without values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tracing import TraceError, trace

Forward = Callable[[torch.Tensor], torch.Tensor]


class Checked(nn.Module):
    """A linear layer on what a function makes of the input."""

    def __init__(self, change: Forward) -> None:
        super().__init__()
        self.change = change
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.layer(self.change(x))
        assert isinstance(out, torch.Tensor)
        return out


def overflow(x: torch.Tensor) -> torch.Tensor:
    return x.exp() if torch.isinf(x).any() or torch.isnan(x).any() else x


def finite(x: torch.Tensor) -> torch.Tensor:
    return x if torch.isfinite(x).all() else x.exp()


def inverted(x: torch.Tensor) -> torch.Tensor:
    return x if (~torch.isnan(x)).all() and not x.isinf().any().item() else x.exp()


def joined(x: torch.Tensor) -> torch.Tensor:
    bad, good = x.isnan() | x.isinf(), x.isfinite() & ~x.isnan()
    return x.exp() if bad.any() or not good.all() else x


def decided(x: torch.Tensor) -> torch.Tensor:
    # an unknown mask matters no more beside one that is false (or true) everywhere
    return x.exp() if (x.isnan() & (x > 0)).any() or not (x.isfinite() | (x > 0)).all() else x


def asserted(x: torch.Tensor) -> torch.Tensor:
    torch._check_tensor_all(x == x)
    return x


def exported(x: torch.Tensor) -> torch.Tensor:
    return x.exp() if not torch.compiler.is_compiling() and (x > 0).all() else x


def unknown(x: torch.Tensor) -> torch.Tensor:
    return x.exp() if (x > 0).any() else x


def undecided(x: torch.Tensor) -> torch.Tensor:
    return x.exp() if (x.isnan() | (x > 0)).any() else x


def written(x: torch.Tensor) -> torch.Tensor:
    mask = torch.isnan(x)
    mask[0] = x[0] > 0
    return x.exp() if mask.any() else x


def written_in_place(x: torch.Tensor) -> torch.Tensor:
    mask = torch.isnan(x)
    mask |= x > 0
    return x.exp() if mask.any() else x


def meta(change: Forward) -> tuple[nn.Module, tuple[torch.Tensor]]:
    return Checked(change).to("meta"), (torch.empty(4, 8, device="meta"),)


@pytest.mark.parametrize("backend", ["export", "record"])
@pytest.mark.parametrize(
    "change", [overflow, finite, inverted, joined, decided, asserted, exported]
)
def test_sound_runs_pass_checks(change: Forward, backend: str) -> None:
    graph = trace(*meta(change), loss="none", backend=backend, unknown_ops="error")
    assert [node.kind for node in graph.nodes].count("linear") == 1
    assert not any("exp" in node.target for node in graph.nodes)
    assert graph.total_flops >= 2 * 4 * 8 * 8
    assert "recorded_run" not in graph.meta


@pytest.mark.parametrize("backend", ["export", "record"])
@pytest.mark.parametrize("change", [unknown, undecided, written, written_in_place])
def test_other_questions_stay_open(change: Forward, backend: str) -> None:
    with pytest.raises(TraceError, match="depends on the values"):
        trace(*meta(change), backend=backend)


@pytest.mark.parametrize("backend", ["export", "record"])
def test_values_are_asked_where_there_are_some(backend: str) -> None:
    x = torch.full((4, 8), float("inf"))
    graph = trace(Checked(overflow), (x,), loss="none", backend=backend)
    taken = any("exp" in node.target for node in graph.nodes)
    # the recorder works on tensors without values, and so sees a sound run
    assert taken == (backend == "export")
    assert not torch.compiler.is_compiling()
