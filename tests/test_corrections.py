"""What the network may correct, and which ways to run a graph look alike to it."""

import math

import pytest
import torch
from torch import nn

from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.encoding.batch import Sample, collate
from prenet_gnn.encoding.device import RUN, device_vector, run_vector
from prenet_gnn.encoding.encode import encode
from prenet_gnn.encoding.template import build_template
from prenet_gnn.network.config import ModelConfig
from prenet_gnn.network.limits import PASSES
from prenet_gnn.network.network import TimeGNN
from prenet_gnn.network.spread import spread
from prenet_gnn.workload.workload import Workload
from tracing import trace
from tracing.costs.vocab import KINDS


def test_no_correction_takes_a_pass_over_memory_beyond_its_limit():
    net = TimeGNN(ModelConfig(hidden=16, head_hidden=16, layers=1, device_hidden=8)).eval()
    layers = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU())
    graph, device = trace(layers, (torch.zeros(4, 3, 8, 8),)), get_hardware("Tesla T4")
    workload = Workload(precision="fp32")
    encoded = encode(build_template(graph, "fp32", 2), graph.batch_size, "fp32")
    vectors = device_vector(device, "fp32"), run_vector(workload, device)
    data = collate([Sample(encoded, *vectors, workload)])
    with torch.no_grad():
        net.head[-1].bias.fill_(1e3)
        seconds = net(data).node
        calls = spread(data)
        compute, memory, kernel = net._device_terms(calls)
    names = [KINDS[i] for i in calls.kind]
    assert {"conv", "batch_norm", "activation"} <= set(names)
    passes = torch.tensor([name in PASSES for name in names])[:, None]
    largest = torch.where(passes, math.exp(1.2), math.exp(3.0))
    expected = (compute + kernel) * math.exp(3.0) + memory * largest
    working = calls.work[:, 4:6] > 0
    assert seconds[working].numpy() == pytest.approx(expected[working].numpy(), rel=1e-4)


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-80GB", "AMD Radeon RX 6800"])
def test_autocast_is_half_precision_to_the_network(name):
    device = get_hardware(name)
    flags = {
        p: run_vector(Workload(precision=p), device)[RUN.index("half")]
        for p in ("fp16", "bf16", "amp_fp16", "amp_bf16", "fp32")
    }
    assert flags == {"fp16": 1, "bf16": 1, "amp_fp16": 1, "amp_bf16": 1, "fp32": 0}
    autocast, plain = (run_vector(Workload(precision=p), device) for p in ("amp_fp16", "fp16"))
    assert (autocast == plain).all()


def test_newer_devices_sit_in_faster_machines_if_the_network_says_so():
    net = TimeGNN(ModelConfig(hidden=16, head_hidden=16, layers=1, device_hidden=8)).eval()
    graph, workload = trace(nn.Linear(4, 4), (torch.zeros(2, 4),)), Workload(precision="fp32")
    encoded = encode(build_template(graph, "fp32", 2), graph.batch_size, "fp32")

    def host(name):
        device = get_hardware(name)
        vectors = device_vector(device, "fp32"), run_vector(workload, device)
        with torch.no_grad():
            return float(net(collate([Sample(encoded, *vectors, workload)])).host)

    old, new = "Tesla P100-PCIE-16GB", "NVIDIA GeForce RTX 4090"  # 2016, 2022
    assert host(old) == pytest.approx(host(new))
    with torch.no_grad():
        net.host_year.fill_(-0.8)
    assert host(old) > 1.2 * host(new)
