"""How tensors lie in memory along a graph, checked against real strides on the CPU."""

import pytest
import torch
from torch import nn

from tracing import trace
from tracing.memory_format import formats


def inputs_lie(model, x):
    """Whether the first input of every call is channels-last in a real run, by operator."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            name = func.name().split("::")[1].split(".")[0]
            first = args[0] if args else None
            if isinstance(first, torch.Tensor) and first.dim() == 4 and first.shape[1] > 1:
                seen.append((name, first.is_contiguous(memory_format=torch.channels_last)))
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), Watch():
        model(x)
    return seen


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.b = nn.Conv2d(8, 8, 3, groups=8)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        y = torch.relu(self.norm(self.a(x)))
        return self.pool(self.b(y) + 1.0)


@pytest.mark.parametrize("last", [False, True])
def test_convolutions_norms_and_pools_hand_the_layout_on(last):
    model, x = Mixed().eval(), torch.randn(2, 3, 12, 12)
    if last:
        model, x = (
            model.to(memory_format=torch.channels_last),
            x.contiguous(memory_format=torch.channels_last),
        )
    graph = trace(model, (x,), loss="none")
    ours = {
        node.kind: fmt.last
        for node, fmt in zip(graph.nodes, formats(graph.nodes, last), strict=True)
    }
    real = dict(inputs_lie(model, x))
    assert ours["conv"] == real["convolution"] == last
    assert ours["activation"] == real["relu"] == last
    assert ours["pool"] == real["max_pool2d_with_indices"] == last


def test_group_norm_breaks_the_layout():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 3))
    graph = trace(model, (torch.randn(2, 3, 8, 8),), loss="none")
    first, norm, second = formats(graph.nodes, True)
    assert first.last and norm.last and norm.converts
    assert not second.last and second.converts
    assert not any(f.last or f.converts for f in formats(graph.nodes, False))


def test_a_permuted_input_makes_a_plain_convolution_run_channels_last():
    class Back(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Linear(8, 8)
            self.conv = nn.Conv2d(8, 8, 3)

        def forward(self, x):  # (N, H, W, C)
            return self.conv(self.mix(x).permute(0, 3, 1, 2))

    graph = trace(Back(), (torch.randn(2, 6, 6, 8),), loss="none")
    by_kind = dict(zip([n.kind for n in graph.nodes], formats(graph.nodes, False), strict=True))
    assert by_kind["conv"].last and not by_kind["conv"].converts
