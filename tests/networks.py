"""Small networks and rows that several tests share."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.encoding.batch import make_sample
from prenet_gnn.encoding.encode import encode
from prenet_gnn.encoding.template import build_template
from prenet_gnn.network.config import LatentConfig, NetworkConfig
from prenet_gnn.network.latents import LatentSizes
from prenet_gnn.network.paired import build_network
from prenet_gnn.network.physics.calls import Calls
from prenet_gnn.workload.workload import Workload
from tracing import trace

T4 = "Tesla T4"


def config(*, head=None, settings=0, effects=None, **encoder):
    """Settings of a small network."""
    made = NetworkConfig()
    made = replace(made, encoder=replace(made.encoder, **{"hidden": 16, "layers": 2, **encoder}))
    if head is not None:
        made = replace(made, head=replace(made.head, hidden=head))
    if effects is not None:
        made = replace(made, physics=replace(made.physics, effects=tuple(effects)))
    return replace(made, latents=LatentConfig(settings))


def without(*effects):
    """All effects but some."""
    return [name for name in NetworkConfig().physics.effects if name not in effects]


def small(sizes=None, **settings):
    """A small network, unfitted."""
    return build_network(config(**settings), sizes or LatentSizes()).eval()


def physics_of(network, batch):
    """Seconds of every call before corrections."""
    return network.physics(Calls(batch), network.latents(batch))


class Block(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x))) + x


def graph_of(blocks=3, batch=4):
    """A small convolution network."""
    net = nn.Sequential(nn.Conv2d(3, 16, 3), *(Block() for _ in range(blocks)), nn.Flatten())
    net.append(nn.LazyLinear(10))
    net(torch.zeros(1, 3, 8, 8))
    return trace(net, (torch.zeros(batch, 3, 8, 8),))


def sample(graph, precision="fp32", hardware=T4, rounds=2, **run):
    """The row of a graph on a device."""
    encoded = encode(build_template(graph, precision, rounds), graph.batch_size, precision)
    return make_sample(encoded, get_hardware(hardware), Workload(precision=precision, **run))
