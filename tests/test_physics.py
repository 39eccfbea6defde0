"""The physics that times start from: terms and the effects that register themselves."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from networks import graph_of, physics_of, sample, small, without
from torch import nn

from prenet_gnn.encoding.batch import collate
from prenet_gnn.encoding.fields import DEVICE, NUMBER_FORMATS
from prenet_gnn.network.physics.arithmetic import class_index
from prenet_gnn.network.physics.calls import Calls
from prenet_gnn.network.physics.effects import EFFECTS, Effect, register_effect
from tracing import trace
from tracing.costs.vocab import KINDS


@pytest.mark.parametrize("name", EFFECTS)
def test_every_effect_can_be_left_out(name):
    net = small(effects=without(name))
    assert name not in net.physics.effects
    row = sample(graph_of(), compiled=True)
    assert torch.isfinite(net(collate([row])).total).all()


def test_an_effect_has_a_name_of_its_own():
    with pytest.raises(ValueError, match="cache"):
        register_effect("cache")(Effect)


def test_an_effect_that_overrides_nothing_changes_nothing():
    net, data = small(effects=()), collate([sample(graph_of())])
    before = net(data).total
    net.physics.effects["idle"] = Effect()
    assert torch.equal(net(data).total, before)


def test_terms_are_positive_and_add_up():
    net, data = small(), collate([sample(graph_of())])
    found = physics_of(net, data)
    parts = (found.arithmetic, found.traffic, found.launches, found.extra)
    assert all((part >= 0).all() for part in parts)
    assert torch.allclose(net(data).node, sum(parts) * (Calls(data).kernels > 0))


def test_a_large_cache_saves_traffic_and_few_tiles_waste_arithmetic():
    net, plain = small(), small(effects=without("part_waves", "cache"))
    plain.load_state_dict(net.state_dict(), strict=False)
    few, many = (collate([sample(graph_of(batch=n))]) for n in (1, 512))
    ratio = [net(d).device.item() / plain(d).device.item() for d in (few, many)]
    assert ratio[0] > ratio[1] > 0.7
    roomy = sample(graph_of(batch=8))
    device = roomy.device.copy()
    device[DEVICE.place("log_l2")] = 0.0
    tight = replace(roomy, device=device)
    assert net(collate([roomy])).device.item() < net(collate([tight])).device.item()


def test_convolutions_run_at_rates_of_their_shape():
    net = small()
    convs = [nn.Conv2d(16, 16, 1), nn.Conv2d(16, 16, 3), nn.Conv2d(16, 16, 3, stride=2)]
    graphs = [trace(nn.Sequential(c), (torch.zeros(2, 16, 9, 9),), loss="none") for c in convs]
    data = collate([sample(graph, mode="infer", optimizer="none") for graph in graphs])
    before = net(data).forward.detach()
    with torch.no_grad():
        net.physics.rates.logits[NUMBER_FORMATS.index("fp32"), class_index("winograd")] += 1.0
    changed = net(data).forward.detach() != before
    assert changed.tolist() == [False, True, False]


def test_a_compiler_saves_the_traffic_between_fused_calls_and_no_other():
    graph = graph_of(blocks=1)
    encoded = sample(graph).encoded
    kinds = [KINDS[i] for i in encoded.kinds]
    share = dict(zip(kinds, encoded.number("fused_share"), strict=True))
    # norm -> relu -> add: the norm reads the convolution's output from memory, the sum is written
    assert share["conv"] == 0
    assert 0.4 < share["batch_norm"] < 0.5  # half of it, but for its weights
    assert share["activation"] == 1
    assert share["binary"] == pytest.approx(1 / 3, abs=0.01)
    net = small()
    eager, compiled = (
        net(collate([sample(graph, compiled=flag)])).node[:, 0].detach().numpy()
        for flag in (False, True)
    )
    saved = {
        kind: after / before for kind, before, after in zip(kinds, eager, compiled, strict=True)
    }
    assert saved["conv"] == pytest.approx(1, abs=1e-5)
    assert saved["activation"] < saved["batch_norm"] < 1
    plain = small(effects=without("compiler_fusion"))
    same = plain(collate([sample(graph, compiled=True)])).node[:, 0].detach().numpy()
    np.testing.assert_allclose(same, eager, rtol=1e-5)


def test_early_float64_convolutions_are_slow_forward_and_only_before_ampere():
    net = small()

    def compute(name, framework, channels=256, kernel=3):
        graph = trace(nn.Conv2d(16, channels, kernel), (torch.zeros(4, 16, 32, 32),))
        s = sample(graph, "fp64", name, framework=framework)
        seconds = physics_of(net, collate([s])).arithmetic.detach().sum(dim=0)
        return seconds.numpy()

    def slower(name, framework, **more):
        return compute(name, framework, **more) / compute(name, "torch-1.12.0", **more)

    card, geforce = "Tesla V100-PCIE-32GB", "NVIDIA GeForce GTX 1080 Ti"
    for early in ("torch-unknown", "torch-1.4"):
        forward, backward = slower(card, early)
        assert forward > 5
        assert backward == pytest.approx(1.0)
        assert slower(card, early, kernel=1)[0] > 5
        # a card whose float64 is no faster than that loses little
        assert 1 < slower(geforce, early)[0] < forward / 3
    for name, framework, channels in (
        (card, "torch-unknown", 128),
        (card, "torch-2.1.0", 256),
        ("NVIDIA A100-SXM4-40GB", "torch-unknown", 256),
        ("AMD Radeon RX 6800", "torch-unknown", 256),
    ):
        assert slower(name, framework, channels=channels) == pytest.approx([1.0, 1.0])
    graph = graph_of()
    plain = small(effects=without("early_float64"))
    assert torch.isfinite(plain(collate([sample(graph, "fp64", card)])).total).all()
