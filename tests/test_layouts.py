"""Layouts that compilers choose, wide depthwise kernels, attention that no fused kernel takes."""

import numpy as np
import pytest
import torch
from networks import physics_of, sample, small
from torch import nn
from torch.nn import functional

from prenet_gnn import load_predictor
from prenet_gnn.encoding.attention import unfused_attention
from prenet_gnn.encoding.batch import collate
from prenet_gnn.encoding.fields import DEVICE, RUN
from prenet_gnn.encoding.layout import compiles_to_channels_last
from prenet_gnn.encoding.template import build_template
from prenet_gnn.network.physics.calls import Calls
from prenet_gnn.network.physics.wide_depthwise import PER_CLOCK
from tracing import trace

CARD, CPU = "NVIDIA GeForce RTX 3090", "Intel Core i9-10940X"


def convolutions(*layers, mode="infer", size=16):
    net, channels = nn.Sequential(*layers), layers[0].in_channels
    loss = "none" if mode == "infer" else "auto"
    if mode == "train":
        net = nn.Sequential(net, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net = net.train(mode == "train")
    return trace(net, (torch.zeros(2, channels, size, size),), loss=loss)


WIDE, GROUPED = nn.Conv2d(128, 128, 3), nn.Conv2d(128, 128, 3, groups=4)
DEPTHWISE, SMALL = nn.Conv2d(128, 128, 3, groups=128), nn.Conv2d(64, 64, 3)
NARROWING = nn.Conv2d(128, 32, 3)


@pytest.mark.parametrize(
    ("layers", "mode", "turned"),
    [
        ((WIDE,), "infer", True),
        ((GROUPED,), "infer", False),  # 1.358 of the plain time, as TorchInductor has it
        ((WIDE, GROUPED), "infer", True),  # a fifth of the FLOPs is grouped
        ((nn.Conv2d(128, 128, 1), GROUPED, GROUPED), "infer", False),  # four fifths are
        ((DEPTHWISE,), "infer", True),
        ((WIDE,), "train", True),
        ((WIDE, GROUPED), "train", False),
        ((WIDE, DEPTHWISE), "train", True),
        ((WIDE, NARROWING), "train", False),
        ((SMALL, SMALL), "train", False),
    ],
)
def test_torchinductor_turns_convolutions_to_channels_last(layers, mode, turned):
    graph = convolutions(*layers, mode=mode)
    assert graph.mode == mode
    assert compiles_to_channels_last(graph) is turned


def test_a_few_convolutions_among_many_calls_are_left_alone():
    calls = [layer for _ in range(60) for layer in (nn.ReLU(), nn.Tanh())]
    assert compiles_to_channels_last(convolutions(WIDE, *calls[:20]))
    assert not compiles_to_channels_last(convolutions(WIDE, *calls))
    assert not compiles_to_channels_last(trace(nn.Linear(4, 4), (torch.zeros(2, 4),)))


@pytest.mark.parametrize(
    ("run", "last"),
    [
        ({}, 0),
        ({"channels_last": True}, 1),
        ({"compiled": True}, 1),
        ({"compiled": True, "hardware": CPU}, 0),
    ],
)
def test_a_compiled_network_runs_in_the_layout_the_compiler_chose(run, last):
    made = sample(convolutions(WIDE), **run)
    data = collate([made, sample(convolutions(GROUPED), **run)])
    chosen = float(run.get("channels_last", False))
    assert RUN.of(data.run, "channels_last").tolist() == [last, chosen]
    assert RUN.of(made.run, "channels_last") == chosen


def per_clock(kernel, framework="torch-2.4.0", hardware=CARD, **run):
    """FLOP per clock and multiprocessor of a depthwise convolution, forward and backward."""
    layer = nn.Conv2d(256, 256, kernel, groups=256, padding=kernel // 2)
    graph = convolutions(layer, mode="train", size=64)
    row = sample(graph, "amp_fp16", hardware, mode="train", framework=framework, **run)
    data = collate([row])
    with torch.no_grad():
        seconds = physics_of(small(), data).arithmetic
    flops = Calls(data).flops
    place = int(flops[:, 0].argmax())
    clock = DEVICE.of(data.device, "log_issue")[0].exp() / 8.0  # multiprocessors x clock
    return (flops[place] / seconds[place] / clock).tolist()


def test_depthwise_kernels_beyond_7_x_7_run_at_rates_of_their_own():
    plain, last, early = PER_CLOCK
    assert per_clock(9) == pytest.approx([plain, plain], rel=0.05)
    assert per_clock(9, channels_last=True) == pytest.approx([last, last], rel=0.05)
    old = per_clock(9, "torch-1.11.0", channels_last=True)
    assert old == pytest.approx([early, last], rel=0.05)
    assert per_clock(9, compiled=True) == pytest.approx([last, last], rel=0.05)
    assert min(per_clock(7)) > 2 * plain
    assert min(per_clock(9, hardware="AMD Radeon RX 6800")) > 2 * plain


class Windows(nn.Module):
    """Attention of (batch, heads, length, channels), or with a dimension of windows more."""

    def __init__(self, windows):
        super().__init__()
        self.windows, self.qkv = windows, nn.Linear(32, 96)

    def forward(self, x):
        shape = (len(x), *([4] if self.windows else []), 2, 16, 16)
        q, k, v = (t.reshape(shape) for t in self.qkv(x).chunk(3, dim=-1))
        return functional.scaled_dot_product_attention(q, k, v).reshape(x.shape)


@pytest.mark.parametrize("windows", [False, True])
def test_attention_of_more_dimensions_runs_as_single_operators(windows):
    # what PyTorch itself chooses: a fused operator, or the matrix products of its fallback
    net, x = Windows(windows).eval(), torch.randn(3, 64 if windows else 16, 32)
    with torch.no_grad(), torch.profiler.profile() as profile:
        net(x)
    ran = {event.key for event in profile.key_averages()}
    fused = "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert (fused in ran) is not windows
    assert ("aten::bmm" in ran) is windows

    graph = trace(net, (x,), loss="none")
    found, origins = unfused_attention(graph)
    kinds = [node.kind for node in found.nodes]
    assert kinds.count("attention") == (not windows)
    assert kinds.count("matmul") == (2 if windows else 0)
    assert len(origins) == len(found.nodes)
    attention = next(n.index for n in graph.nodes if n.kind == "attention")
    assert origins.count(attention) == (5 if windows else 1)
    assert len(build_template(graph, "fp32").members) == len(found.nodes)


def test_time_of_split_attention_is_billed_to_the_call_it_comes_from():
    graph = trace(Windows(True).eval(), (torch.randn(3, 64, 32),), loss="none")
    prediction = load_predictor().predict(graph, CARD)
    attention = next(n.index for n in graph.nodes if n.kind == "attention")
    calls = {call.node: call for call in prediction.calls}
    assert len(calls) == len(prediction.calls)
    assert set(calls) <= {n.index for n in graph.nodes}
    assert calls[attention].forward_s > 0
    assert calls[attention].operator == graph.nodes[attention].target


@pytest.mark.parametrize(
    ("channels", "column", "set_"),
    [(16, "channels_by_8", 1), (12, "channels_by_8", 0), (16, "beyond_32_bit", 0)],
)
def test_channels_that_fill_vectors_are_told(channels, column, set_):
    graph = convolutions(nn.Conv2d(3, channels, 3))
    assert sample(graph).encoded.number(column)[0] == set_


def test_tensors_with_more_elements_than_32_bits_count_are_told():
    graph = trace(nn.ReLU(), (torch.zeros(4, 3, 8, 8),), loss="none")
    big = trace(nn.ReLU(), (torch.zeros(2**15, 2**8, 2**4, 2**4, device="meta"),), loss="none")
    beyond = [sample(each).encoded.number("beyond_32_bit")[0] for each in (graph, big)]
    assert beyond == [0, 1]
    assert np.isfinite(sample(big).encoded.numbers).all()


class Casts(nn.Module):
    """A product, a softmax in float32 and a product in half precision again."""

    def forward(self, x):
        return torch.softmax(x @ x.transpose(1, 2), dim=-1) @ x


def test_compilers_convert_formats_on_the_way():
    graph = trace(Casts(), (torch.zeros(8, 64, 64),), loss="none")
    encoded = sample(graph, "amp_fp16", CARD).encoded
    share = encoded.number("fused_share")
    _, softmax, product = encoded.pair("bytes")[:, 0] / (8 * 64 * 64)
    # bytes an element: converted from half (6), read and written in float32
    assert softmax == 6 + 8
    assert share[1] == pytest.approx(8 / 14)  # what is left is 2 read, 4 written
    # softmax and the input are converted to half (6 each), read, and the result is written
    assert product == 12 + 6
    assert share[2] == pytest.approx(6 / 18)  # softmax writes halves itself
    assert not sample(graph, "fp16", CARD).encoded.number("fused_share").any()
