"""Attention outside of fused kernels, which PyTorch computes in float32 since version 2.5."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from prenet_gnn import load_predictor
from prenet_gnn.data.keys import GraphKey
from prenet_gnn.encoding.attention import unfused_attention
from prenet_gnn.encoding.encode import encode
from prenet_gnn.encoding.precision import lower
from prenet_gnn.encoding.template import build_template
from prenet_gnn.training.store import Store, entry_key
from prenet_gnn.workload.frameworks import computes_in_single, version_in
from prenet_gnn.workload.workload import Workload
from tracing import trace

CARD = "NVIDIA GeForce RTX 4090"


class Attention(nn.Module):
    """Self-attention on tensors of `shape`, within windows where that has five dimensions."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape, self.out = shape, nn.Linear(shape[-1], 8)

    def forward(self, x):
        x = x.reshape(-1, *self.shape)
        return self.out(functional.scaled_dot_product_attention(x, x, x))


def windows():
    return trace(Attention(2, 4, 16, 8).eval(), (torch.randn(3, 1024),), loss="none")


def test_what_this_pytorch_runs_is_what_is_billed():
    q = torch.randn(3, 2, 4, 16, 8, dtype=torch.float16)
    with torch.no_grad(), torch.profiler.profile(record_shapes=True) as profile:
        functional.scaled_dot_product_attention(q, q, q)
    ran = [event.name for event in profile.events()]
    assert computes_in_single(version_in(f"torch-{torch.__version__}"))
    assert ran.count("aten::bmm") == 2
    assert "aten::isneginf" in ran
    converted = [
        e for e in profile.events() if e.name == "aten::copy_" and e.input_shapes[0] == [*q.shape]
    ]
    assert len(converted) == 4  # three inputs and the result

    graph, _ = unfused_attention(windows(), single=True)
    names = [node.target.split(".")[1] for node in graph.nodes if node.autocast == "single"]
    assert names == [
        "mul",
        "mul",
        "matmul",
        "softmax",
        "isneginf",
        "all",
        "where",
        "dropout",
        "matmul",
    ]
    for precision in ("amp_fp16", "fp16"):
        lowered = lower(graph.nodes, precision)
        calls = [
            low for node, low in zip(graph.nodes, lowered, strict=True) if node.kind == "matmul"
        ]
        assert [low.item_in for low in calls] == [(4, 4), (4, 4)]


@pytest.mark.parametrize("precision", ["amp_fp16", "fp16", "bf16"])
def test_half_precision_moves_about_twice_the_bytes_since_2_5(precision):
    graph = windows()
    before, since = (
        encode(build_template(graph, precision, single_attention=single), 3, precision)
        for single in (False, True)
    )
    moved = [float((e.counts @ e.pair("bytes"))[0]) for e in (before, since)]
    assert 1.5 < moved[1] / moved[0] < 4
    full = encode(build_template(graph, "fp32", single_attention=True), 3, "fp32")
    assert float((full.counts @ full.pair("bytes"))[0]) < moved[1] * 1.2


def test_fused_attention_is_the_same_in_all_versions():
    graph = trace(Attention(4, 16, 8).eval(), (torch.randn(3, 512),), loss="none")
    before, since = (
        build_template(graph, "fp16", single_attention=single) for single in (False, True)
    )
    assert np.array_equal(before.members, since.members)
    assert unfused_attention(graph, single=True)[0] is graph


def test_predictions_go_by_the_version():
    predictor, graph = load_predictor(), windows()
    old, new = (
        predictor.predict(graph, CARD, Workload("infer", "fp16", framework=f"torch-{version}"))
        for version in ("2.4.1", "2.5.0")
    )
    assert len(old.calls) == len(new.calls)
    assert new.device_s > old.device_s


def test_rows_of_all_versions_share_arrays_that_are_equal():
    key, store = GraphKey("timm", "net"), Store()
    rows = [
        SimpleNamespace(framework=name, precision="amp_fp16", batch_size=4)
        for name in ("torch-2.4.0", "torch-2.9.1", "torch-unknown")
    ]
    old, new, unknown = (entry_key(key, row) for row in rows)
    assert (old.single_attention, new.single_attention) == (False, True)
    assert unknown == old
    assert not entry_key(replace(key, attention="eager"), rows[1]).single_attention
    graph = windows()
    for entry, single in ((old, False), (new, True)):
        template = build_template(graph, "amp_fp16", single_attention=single)
        store.entries[entry] = encode(template, 3, "amp_fp16")
    assert store.shared(new) == new
    store.entries[new] = replace(store.entries[old], counts=store.entries[old].counts.copy())
    assert store.shared(new) == old
