"""Laws of the network: additive, blind to order, the same alone and in a batch."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from networks import T4, graph_of, sample, small
from torch import nn

from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.encoding.batch import collate
from prenet_gnn.encoding.encode import Encoded
from prenet_gnn.encoding.fields import EDGE
from prenet_gnn.encoding.template import build_template
from prenet_gnn.network.config import NetworkConfig
from prenet_gnn.network.host import HOSTS
from prenet_gnn.network.latents import LatentSizes
from prenet_gnn.network.message_passing import CONVS
from prenet_gnn.network.network import build_single
from prenet_gnn.network.physics.roofline import PHYSICS


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("physics", PHYSICS)
def test_blocks_can_be_swapped(host, physics):
    config = NetworkConfig.from_dict({"host": {"kind": host}, "physics": {"kind": physics}})
    net = build_single(config, LatentSizes()).eval()
    times = net(collate([sample(graph_of())]))
    assert times.total.item() > 0
    assert (times.host.item() == 0) == (host == "none")


@pytest.fixture
def model():
    torch.manual_seed(0)
    net = small()
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.1)
    return net


def test_equal_calls_are_joined_without_changing_the_sum(model):
    graph = graph_of(blocks=8)
    joined = sample(graph)
    assert len(joined.encoded.counts) < len([n for n in graph.nodes if n.kind != "view"])
    # every call on its own: a template whose classes never merge
    alone = split_up(joined.encoded, graph)
    apart = model(collate([replace(joined, encoded=alone)]))
    together = model(collate([joined]))
    torch.testing.assert_close(apart.total, together.total, rtol=1e-4, atol=0)
    torch.testing.assert_close(apart.backward, together.backward, rtol=1e-4, atol=0)


def split_up(encoded: Encoded, graph) -> Encoded:
    template = build_template(graph, "fp32")
    members = template.members
    working = [i for i in range(len(graph.nodes)) if members[i] >= 0]
    place = {node: k for k, node in enumerate(working)}
    pick = members[working]
    from prenet_gnn.encoding.template import _producers

    feeds = _producers(graph)
    pairs = {}
    for node in working:
        for producer, _ in feeds[node]:
            key = (place[producer], place[node])
            pairs[key] = pairs.get(key, 0) + 1
    sizes = {}
    for (a, _), size in zip(
        encoded.edges.T, EDGE.of(encoded.edge_numbers, "log_size"), strict=True
    ):
        sizes[int(a)] = size
    edges = np.array(sorted(pairs)).T
    numbers = [[pairs[(a, b)], pairs[(a, b)], sizes[int(pick[a])]] for a, b in edges.T.tolist()]
    return Encoded(
        encoded.numbers[pick],
        encoded.operators[pick],
        encoded.work[pick],
        np.ones(len(working)),
        edges,
        np.array(numbers, dtype=np.float32),
        encoded.totals,
    )


def test_the_order_of_calls_does_not_matter(model):
    one = sample(graph_of())
    e = one.encoded
    order = np.random.default_rng(0).permutation(len(e.operators))
    place = np.argsort(order)
    shuffled = Encoded(
        e.numbers[order], e.operators[order], e.work[order], e.counts[order],
        place[e.edges][:, ::-1].copy(), e.edge_numbers[::-1].copy(), e.totals,
    )  # fmt: skip
    a, b = model(collate([one])), model(collate([replace(one, encoded=shuffled)]))
    torch.testing.assert_close(a.total, b.total, rtol=1e-5, atol=0)


def test_a_batch_gives_what_single_graphs_give(model):
    samples = [sample(graph_of(n)) for n in (1, 2, 5)]
    together = model(collate(samples)).total
    alone = torch.cat([model(collate([s])).total for s in samples])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=0)


def test_rows_of_one_graph_share_its_calls(model):
    here = sample(graph_of())
    there = replace(sample(graph_of(), hardware="NVIDIA A100-SXM4-40GB"), encoded=here.encoded)
    other = sample(graph_of(5))
    data = collate([here, other, there])
    assert len(data.operator) == len(here.encoded.operators) + len(other.encoded.operators)
    alone = torch.cat([model(collate([s])).total for s in (here, other, there)])
    torch.testing.assert_close(model(data).total, alone, rtol=1e-5, atol=0)


def test_every_parameter_gets_a_gradient():
    net = small(LatentSizes(2, 2, 2)).train()
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.1)
    run = {"timed": "h2d+zero_grad+forward+loss+backward+optimizer", "framework": "torch-1.12"}
    s = replace(sample(graph_of(), **run), latents=(1, 1, 1))
    t = replace(sample(graph_of(), precision="fp16", hardware="i9-10940X"), latents=(1, 0, 0))
    net(collate([s, t])).total.sum().backward()
    missing = [name for name, p in net.named_parameters() if p.grad is None]
    assert not missing


def test_an_untrained_network_is_a_sane_roofline():
    net = small()
    graph = graph_of(batch=256)
    work = sample(graph).encoded
    device = get_hardware(T4)
    flops, moved = ((work.counts @ work.pair(name)).sum() for name in ("flops", "bytes"))
    bound = max(flops / device.peak_flops_per_s("fp32"), moved / device.memory_bytes_per_s)
    assert bound < net(collate([sample(graph)])).total.item() < 30 * bound


@pytest.mark.parametrize("conv", CONVS)
def test_all_layers_run(conv):
    net = small(hidden=8, layers=1, conv=conv)
    assert net(collate([sample(graph_of())])).total.item() > 0


def test_names_are_hidden_in_training_only():
    net = small(operator_dropout=1.0).encoder
    data = collate([sample(graph_of())])
    named = net(data)
    assert torch.equal(net(data), named)
    hidden = net.train()(data)
    assert not torch.equal(hidden, named)
    data = replace(data, operator=torch.zeros_like(data.operator))
    assert torch.equal(hidden, net(data))
