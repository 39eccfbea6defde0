"""Upsampling kernels that loop over samples and channels."""

import pytest
import torch
from networks import physics_of, sample, small
from torch import nn

from prenet_gnn.encoding.batch import collate
from prenet_gnn.network.physics.upsampling import TURN_S
from tracing import trace


def upsampled(mode="bilinear", card="NVIDIA GeForce RTX 3090", **run):
    net = nn.Sequential(nn.Conv2d(3, 32, 1), nn.Upsample(scale_factor=2, mode=mode))
    graph = trace(net.eval(), (torch.zeros(4, 3, 6, 6),), loss="none")
    return sample(graph, hardware=card, mode="infer", optimizer="none", **run)


@pytest.mark.parametrize(
    ("run", "turns"),
    [
        ({}, 4 * 32),
        ({"mode": "bicubic"}, 4 * 32),
        ({"mode": "nearest"}, 0),
        ({"compiled": True}, 0),
        ({"channels_last": True}, 0),
        ({"card": "Intel Core i9-10940X"}, 0),
    ],
)
def test_one_turn_for_each_sample_and_channel_where_the_kernel_loops(run, turns):
    seconds = physics_of(small(), collate([upsampled(**run)])).extra.detach()
    assert float(seconds[:, 0].sum()) == pytest.approx(turns * TURN_S, rel=0.01)
    assert not seconds[:, 1].any()


def test_loops_take_their_time():
    net = small()
    with torch.no_grad():
        slow, fast = (
            float(net(collate([upsampled(mode=mode)])).node[:, 0].sum())
            for mode in ("bilinear", "nearest")
        )
    assert 0.2e-6 < (slow - fast) / (4 * 32) < 0.4e-6
