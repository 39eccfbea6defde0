"""Laws of the network: additive, blind to order, the same alone and in a batch."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.encoding.batch import Sample, collate
from prenet_gnn.encoding.device import DEVICE, FORMATS, RUN, device_vector, format_of, run_vector
from prenet_gnn.encoding.encode import Encoded, encode
from prenet_gnn.encoding.fields import NUMBERS, WIDTH
from prenet_gnn.encoding.template import build_template
from prenet_gnn.network.config import ModelConfig
from prenet_gnn.network.message_passing import CONVS
from prenet_gnn.network.network import WINOGRAD, TimeGNN
from prenet_gnn.network.spread import spread
from prenet_gnn.workload.workload import Workload
from tracing import trace
from tracing.costs.vocab import KINDS

T4 = "Tesla T4"


class Block(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x))) + x


def graph_of(blocks=3, batch=4):
    net = nn.Sequential(nn.Conv2d(3, 16, 3), *(Block() for _ in range(blocks)), nn.Flatten())
    net.append(nn.LazyLinear(10))
    net(torch.zeros(1, 3, 8, 8))
    return trace(net, (torch.zeros(batch, 3, 8, 8),))


def sample(graph, precision="fp32", hardware=T4, rounds=2, **run):
    workload = Workload(precision=precision, **run)
    device = get_hardware(hardware)
    encoded = encode(build_template(graph, precision, rounds), graph.batch_size, precision)
    return Sample(encoded, device_vector(device, precision), run_vector(workload, device), workload)


@pytest.fixture
def model():
    torch.manual_seed(0)
    net = TimeGNN(ModelConfig(hidden=16)).eval()
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.1)
    return net


def test_columns_and_names_agree():
    assert len(KINDS) + len(NUMBERS) == WIDTH
    encoded = sample(graph_of()).encoded
    assert encoded.numbers.shape[1] == WIDTH
    assert np.isfinite(encoded.numbers).all()
    assert (encoded.numbers[:, : len(KINDS)].sum(axis=1) == 1).all()
    assert len(sample(graph_of()).device) == len(DEVICE)
    assert len(sample(graph_of()).run) == len(RUN)


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
    for (a, _), size in zip(encoded.edges.T, encoded.edge_numbers[:, 2], strict=True):
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
    assert data.num_nodes == len(here.encoded.operators) + len(other.encoded.operators)
    alone = torch.cat([model(collate([s])).total for s in (here, other, there)])
    torch.testing.assert_close(model(data).total, alone, rtol=1e-5, atol=0)


def test_a_large_cache_saves_traffic_and_few_tiles_waste_arithmetic():
    net = TimeGNN(ModelConfig(hidden=16)).eval()
    plain = TimeGNN(ModelConfig(hidden=16, use_fill=False)).eval()
    plain.load_state_dict(net.state_dict())
    small, large = (collate([sample(graph_of(batch=n))]) for n in (1, 512))
    ratio = [net(d).device.item() / plain(d).device.item() for d in (small, large)]
    assert ratio[0] > ratio[1] > 0.7
    roomy = sample(graph_of(batch=8))
    tight = replace(roomy, device=roomy.device.copy())
    tight.device[DEVICE.index("log_l2")] = 0.0
    assert net(collate([roomy])).device.item() < net(collate([tight])).device.item()


def test_every_parameter_gets_a_gradient():
    net = TimeGNN(ModelConfig(hidden=16, device_latents=2, host_latents=2, framework_latents=2))
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.1)
    run = {"timed": "h2d+zero_grad+forward+loss+backward+optimizer", "framework": "torch-1.12"}
    s = replace(sample(graph_of(), **run), device_latent=1, host_latent=1, framework_latent=1)
    t = replace(sample(graph_of(), precision="fp16", hardware="i9-10940X"), device_latent=1)
    net(collate([s, t])).total.sum().backward()
    missing = [name for name, p in net.named_parameters() if p.grad is None]
    assert not missing


def test_an_untrained_network_is_a_sane_roofline():
    net = TimeGNN(ModelConfig(hidden=16)).eval()
    graph = graph_of(batch=256)
    work = sample(graph).encoded
    device = get_hardware(T4)
    flops = (work.counts @ work.work)[:2].sum()
    moved = (work.counts @ work.work)[2:4].sum()
    bound = max(flops / device.peak_flops_per_s("fp32"), moved / device.memory_bytes_per_s)
    assert bound < net(collate([sample(graph)])).total.item() < 30 * bound


@pytest.mark.parametrize("conv", CONVS)
def test_all_layers_run(conv):
    net = TimeGNN(ModelConfig(hidden=8, layers=1, conv=conv)).eval()
    assert net(collate([sample(graph_of())])).total.item() > 0


@pytest.mark.parametrize(
    ("hardware", "precision", "expected"),
    [
        (T4, "amp_fp16", "half_matrix"),
        ("NVIDIA GeForce GTX 1080 Ti", "fp16", "half_plain"),
        (T4, "tf32", "fp32"),
        ("NVIDIA A100-SXM4-40GB", "tf32", "tf32"),
        ("Intel Core i9-10940X", "fp32", "cpu"),
        (T4, "fp64", "fp64"),
    ],
)
def test_number_formats_of_devices(hardware, precision, expected):
    assert format_of(get_hardware(hardware), precision) == expected
    assert set(FORMATS) >= {expected}


@pytest.mark.parametrize(
    ("name", "lanes"),
    [
        ("Tesla K40", 128),  # of 192
        ("Tesla P4", 128),
        ("Tesla V100-SXM2-16GB", 64),
        ("NVIDIA A100-SXM4-40GB", 64),
        ("NVIDIA GeForce RTX 3090", 64),  # 128, half of them shared with integers
        ("NVIDIA H100-SXM5-80GB", 128),
        ("AMD Instinct MI210", 128),  # matrix cores
        ("AMD Radeon RX 6800", 64),
    ],
)
def test_sustained_float32_rate_follows_the_architecture(name, lanes):
    device = get_hardware(name)
    vector = dict(zip(DEVICE, device_vector(device, "fp32"), strict=True))
    rate = 2 * lanes * device.multiprocessors * device.boost_clock_hz
    assert vector["log_sustained"] == pytest.approx(np.log(rate))


def test_multiprocessors_limit_memory_traffic_on_gpus_alone(model):
    hbm, gddr = get_hardware("NVIDIA H100-SXM5-80GB"), get_hardware("NVIDIA GeForce RTX 4090")
    column = DEVICE.index("log_issue")
    # per byte of bandwidth the 4090 has far more multiprocessors and clock
    excess = [device_vector(d, "fp32")[column] - np.log(d.memory_bytes_per_s) for d in (hbm, gddr)]
    assert excess[1] - excess[0] > 1.0
    cpu = get_hardware("Intel Core i9-10940X")
    assert device_vector(cpu, "fp32")[column] == pytest.approx(np.log(cpu.memory_bytes_per_s))


def test_bfloat16_and_float16_are_one_to_the_network():
    device = get_hardware("NVIDIA A100-SXM4-40GB")
    half, brain = (run_vector(Workload(precision=p), device) for p in ("amp_fp16", "amp_bf16"))
    assert (half == brain).all()


def test_names_are_hidden_in_training_only():
    net = TimeGNN(ModelConfig(hidden=16, operator_dropout=1.0)).eval()
    data = collate([sample(graph_of())])
    named = net.embed(data)
    assert torch.equal(net.embed(data), named)
    hidden = net.train().embed(data)
    assert not torch.equal(hidden, named)
    data.operator = torch.zeros_like(data.operator)
    assert torch.equal(hidden, net.embed(data))


def test_convolutions_run_at_rates_of_their_shape():
    net = TimeGNN(ModelConfig(hidden=16)).eval()
    convs = [nn.Conv2d(16, 16, 1), nn.Conv2d(16, 16, 3), nn.Conv2d(16, 16, 3, stride=2)]
    graphs = [trace(nn.Sequential(c), (torch.zeros(2, 16, 9, 9),), loss="none") for c in convs]
    data = collate([sample(graph, mode="infer", optimizer="none") for graph in graphs])
    before = net(data).forward.detach()
    with torch.no_grad():
        net.rate_logits[FORMATS.index("fp32"), WINOGRAD] += 1.0
    changed = net(data).forward.detach() != before
    assert changed.tolist() == [False, True, False]


def test_a_compiler_saves_the_traffic_between_fused_calls_and_no_other():
    graph = graph_of(blocks=1)
    encoded = sample(graph).encoded
    kinds = [KINDS[i] for i in encoded.numbers[:, : len(KINDS)].argmax(axis=1)]
    share = dict(
        zip(kinds, encoded.numbers[:, len(KINDS) + NUMBERS.index("fused_share")], strict=True)
    )
    # norm -> relu -> add: the norm reads the convolution's output from memory, the sum is written
    assert share["conv"] == 0
    assert 0.4 < share["batch_norm"] < 0.5  # half of it, but for its weights
    assert share["activation"] == 1
    assert share["binary"] == pytest.approx(1 / 3, abs=0.01)
    net = TimeGNN(ModelConfig(hidden=16)).eval()
    eager, compiled = (
        net(collate([sample(graph, compiled=flag)])).node[:, 0].detach().numpy()
        for flag in (False, True)
    )
    saved = {
        kind: after / before for kind, before, after in zip(kinds, eager, compiled, strict=True)
    }
    assert saved["conv"] == pytest.approx(1, abs=1e-5)
    assert saved["activation"] < saved["batch_norm"] < 1
    without = TimeGNN(ModelConfig(hidden=16, use_fusion=False)).eval()
    same = without(collate([sample(graph, compiled=True)])).node[:, 0].detach().numpy()
    np.testing.assert_allclose(same, eager, rtol=1e-5)


def test_columns_tell_how_far_tiles_are_filled():
    names = ("pad_rows_128", "pad_cols_32", "pad_cols_64", "pad_cols_128", "pad_inner_32")
    net = nn.Sequential(nn.Linear(48, 96, bias=False))
    encoded = sample(trace(net, (torch.zeros(100, 48),))).encoded
    found = {n: encoded.numbers[0, len(KINDS) + NUMBERS.index(n)] for n in names}
    expected = {"rows_128": 128 / 100, "cols_32": 1, "cols_64": 128 / 96, "cols_128": 128 / 96}
    expected["inner_32"] = 64 / 48
    for name, factor in expected.items():
        assert found[f"pad_{name}"] == pytest.approx(np.log2(factor) / 4, abs=1e-5)


def test_columns_tell_which_groups_are_a_power_of_two_wide():
    column = len(KINDS) + NUMBERS.index("group_power_of_2")

    def even(groups, width):
        conv = nn.Conv2d(groups * width, groups * width, 3, groups=groups)
        graph = trace(conv, (torch.zeros(2, groups * width, 5, 5),))
        return sample(graph).encoded.numbers[0, column]

    assert [even(4, width) for width in (1, 8, 24, 64)] == [0, 1, 0, 1]
    assert even(1, 8) == 0  # not grouped


@pytest.mark.parametrize(("rate", "mode", "works"), [(0.0, "train", 0), (0.5, "infer", 0),
                                                     (0.5, "train", 1)])  # fmt: skip
def test_a_dropout_that_drops_nothing_is_billed_to_the_host_alone(rate, mode, works):
    def encoded(*layers):
        net = nn.Sequential(nn.Linear(8, 8), *layers, nn.Linear(8, 4)).train(mode == "train")
        graph = trace(net, (torch.zeros(2, 8),), loss="none")
        return sample(graph, mode=mode, optimizer="none").encoded

    without, found = encoded(), encoded(nn.Dropout(rate))
    assert len(found.work) - len(without.work) == works
    views = [int(one.totals[4]) for one in (without, found)]
    assert views[1] - views[0] == 1 - works
    if not works:
        np.testing.assert_array_equal(found.numbers, without.numbers)
        np.testing.assert_array_equal(found.edges, without.edges)


class Squeeze(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.gate = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1)

    def forward(self, x):
        x = torch.relu(self.conv(x)).neg()
        return x * torch.sigmoid(self.gate(x.mean((2, 3), keepdim=True)))


def test_what_waits_for_a_product_or_a_sum_is_read_from_memory():
    template = build_template(trace(Squeeze(), (torch.zeros(2, 3, 8, 8),)), "fp32")
    found = {node.op: fused for node, fused in zip(template.nodes, template.fusion, strict=True)}
    assert found["relu"] == ((False,), True)  # read from the convolution, kept for the negation
    assert found["neg"] == ((True,), False)  # the product at the end reads it again
    assert found["mean"][0][0] is True
    assert found["sigmoid"] == ((False,), True)
    assert found["mul"][0] == (False, True)


def test_early_float64_convolutions_are_slow_forward_and_only_before_ampere():
    net = TimeGNN(ModelConfig(hidden=16)).eval()

    def compute(name, framework, channels=256, kernel=3):
        graph = trace(nn.Conv2d(16, channels, kernel), (torch.zeros(4, 16, 32, 32),))
        s = sample(graph, "fp64", name, framework=framework)
        seconds = net._device_terms(spread(collate([s])))[0].detach().sum(dim=0)
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
    without = TimeGNN(ModelConfig(hidden=16, use_old_fp64=False)).eval()
    assert torch.isfinite(without(collate([sample(graph, "fp64", card)])).total).all()


def test_half_precision_without_matrix_units_adds_up_in_float32_on_nvidia_and_is_packed_on_radeon():
    def rates(name, precision):
        vector = dict(zip(DEVICE, device_vector(get_hardware(name), precision), strict=True))
        return np.exp([vector["log_peak"], vector["log_sustained"]])

    for pascal in ("Tesla P100-PCIE-16GB", "NVIDIA GeForce GTX 1080 Ti"):
        assert rates(pascal, "fp16") == pytest.approx(rates(pascal, "fp32"))
    for radeon in ("AMD Radeon RX 6800", "AMD Radeon RX 7900 XTX"):
        assert format_of(get_hardware(radeon), "fp16") == "half_plain"
        assert rates(radeon, "fp16")[1] == pytest.approx(2 * rates(radeon, "fp32")[1])
    assert format_of(get_hardware("AMD Instinct MI300X"), "fp16") == "half_matrix"


def test_float64_of_rdna_3_is_half_of_the_larger_figure():
    xtx = get_hardware("AMD Radeon RX 7900 XTX")
    log_peak = device_vector(xtx, "fp64")[DEVICE.index("log_peak")]
    assert np.exp(log_peak) == pytest.approx(xtx.peak_flops_per_s("fp64") / 2, rel=0.01)
