"""Shares by module and operator: what the study makes of a profile."""

import pytest
import torch
from torch import nn

from experiments import breakdown


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def profiled(backward):
    from torch.profiler import ProfilerActivity, profile

    from prenet_gnn.measuring.memory import quiet_profiler

    quiet_profiler()
    model, x = Net(), torch.zeros(2, 3, 32, 32)
    with breakdown.marked(model), profile(activities=[ProfilerActivity.CPU]) as profiler:
        out = model(x)
        if backward:
            out.sum().backward()
    assert not any(module._forward_hooks for module in model.modules())
    return breakdown.added(breakdown.attributed(list(profiler.events())))


def test_calls_go_to_their_innermost_module_and_kind():
    by_module, by_kind = profiled(backward=False)
    assert set(by_module) == {"body.0", "body.1", "head", "(root)"}
    assert {"conv", "activation", "linear", "reduce"} <= set(by_kind)
    assert sum(by_module.values()) == pytest.approx(sum(by_kind.values()))


def test_the_backward_pass_goes_to_the_forward_call():
    by_module, by_kind = profiled(backward=True)
    assert set(by_module) == {"body.0", "body.1", "head", "(root)"}
    events = by_kind
    assert events["conv"] > 0
    assert "other" not in events


def test_shares_are_compared_over_all_groups():
    same = breakdown.compared({"a": 0.5, "b": 0.3, "c": 0.2}, {"a": 0.5, "b": 0.3, "c": 0.2})
    assert (same["spearman"], same["misplaced"], same["costliest_found"]) == (1.0, 0.0, 1.0)
    turned = breakdown.compared({"a": 0.6, "b": 0.4}, {"b": 0.6, "c": 0.4})
    assert turned["groups"] == 3
    assert turned["misplaced"] == pytest.approx(0.6)
    assert turned["mean_difference"] == pytest.approx(0.4)
    assert turned["costliest_found"] == 0.0


def test_names_are_cut_as_predictions_cut_them():
    assert breakdown.cut("layer1.0.conv1") == "layer1.0"
    assert breakdown.cut("") == "(root)"
    assert breakdown.normal({"a": 3.0, "b": 1.0}) == {"a": 0.75, "b": 0.25}
    assert breakdown.normal({}) == {}


def test_there_are_ten_models_at_least():
    assert len(set(breakdown.MODELS)) >= 10
