"""Upsampling kernels that loop over samples and channels."""

import pytest
import torch
from torch import nn

from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.encoding.batch import Sample, collate
from prenet_gnn.encoding.device import device_vector, run_vector
from prenet_gnn.encoding.encode import encode
from prenet_gnn.encoding.template import build_template
from prenet_gnn.network.config import ModelConfig
from prenet_gnn.network.loops import TURN_S, loop_seconds
from prenet_gnn.network.network import TimeGNN
from prenet_gnn.network.spread import spread
from prenet_gnn.workload.workload import Workload
from tracing import trace


def sample(mode="bilinear", card="NVIDIA GeForce RTX 3090", **run):
    net = nn.Sequential(nn.Conv2d(3, 32, 1), nn.Upsample(scale_factor=2, mode=mode))
    graph = trace(net.eval(), (torch.zeros(4, 3, 6, 6),), loss="none")
    workload = Workload(mode="infer", optimizer="none", **run)
    device = get_hardware(card)
    encoded = encode(build_template(graph, "fp32"), 4, "fp32")
    return Sample(encoded, device_vector(device, "fp32"), run_vector(workload, device), workload)


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
    data = spread(collate([sample(**run)]))
    assert float(loop_seconds(data).sum()) == pytest.approx(turns * TURN_S, rel=0.01)


def test_loops_take_their_time():
    net = TimeGNN(ModelConfig(hidden=16)).eval()
    with torch.no_grad():
        slow, fast = (
            float(net(collate([sample(mode=mode)])).node[:, 0].sum())
            for mode in ("bilinear", "nearest")
        )
    assert 0.2e-6 < (slow - fast) / (4 * 32) < 0.4e-6
