"""What the network may correct, and which ways to run a graph look alike to it."""

import math

import pytest
import torch
from networks import physics_of, sample, small
from torch import nn

from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.encoding.batch import collate
from prenet_gnn.encoding.device import run_vector
from prenet_gnn.encoding.fields import RUN
from prenet_gnn.network.head import PASSES
from prenet_gnn.network.physics.calls import Calls
from prenet_gnn.workload.workload import Workload
from tracing import trace
from tracing.costs.vocab import KINDS


def test_no_correction_takes_a_pass_over_memory_beyond_its_limit():
    net = small(head=16, layers=1)
    layers = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU())
    data = collate([sample(trace(layers, (torch.zeros(4, 3, 8, 8),)))])
    calls = Calls(data)
    with torch.no_grad():
        net.head.after_run[-1].bias.fill_(1e3)
        seconds, found = net(data).node, physics_of(net, data)
    names = [KINDS[i] for i in calls.kind]
    assert {"conv", "batch_norm", "activation"} <= set(names)
    passes = torch.tensor([name in PASSES for name in names])[:, None]
    largest = torch.where(passes, math.exp(1.2), math.exp(3.0))
    expected = (found.arithmetic + found.launches) * math.exp(3.0) + found.traffic * largest
    working = calls.kernels > 0
    assert seconds[working].numpy() == pytest.approx(expected[working].numpy(), rel=1e-4)


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-80GB", "AMD Radeon RX 6800"])
def test_autocast_is_half_precision_to_the_network(name):
    device = get_hardware(name)
    flags = {
        p: RUN.of(run_vector(Workload(precision=p), device), "half")
        for p in ("fp16", "bf16", "amp_fp16", "amp_bf16", "fp32")
    }
    assert flags == {"fp16": 1, "bf16": 1, "amp_fp16": 1, "amp_bf16": 1, "fp32": 0}
    autocast, plain = (run_vector(Workload(precision=p), device) for p in ("amp_fp16", "fp16"))
    assert (autocast == plain).all()


def test_newer_devices_sit_in_faster_machines_if_the_network_says_so():
    net, graph = small(head=16, layers=1), trace(nn.Linear(4, 4), (torch.zeros(2, 4),))

    def host(name):
        with torch.no_grad():
            return float(net(collate([sample(graph, hardware=name)])).host)

    old, new = "Tesla P100-PCIE-16GB", "NVIDIA GeForce RTX 4090"  # 2016, 2022
    assert host(old) == pytest.approx(host(new))
    with torch.no_grad():
        net.host.year.fill_(-0.8)
    assert host(old) > 1.2 * host(new)
