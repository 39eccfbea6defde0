"""Graphs, devices and ways to run as numbers: names, units and what they must tell."""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from networks import T4, graph_of, sample
from torch import nn

from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.catalogue.rates import number_format, rates_of
from prenet_gnn.encoding.batch import collate
from prenet_gnn.encoding.device import run_vector
from prenet_gnn.encoding.fields import (
    DEVICE,
    EDGE,
    NODE,
    NUMBER_FORMATS,
    RUN,
    STEP,
    TABLES,
    TOTALS,
    WORK,
)
from prenet_gnn.encoding.template import build_template
from prenet_gnn.workload.workload import Workload
from tracing import trace
from tracing.costs.vocab import KINDS

ROOT = Path(__file__).resolve().parents[1]


def test_columns_and_names_agree():
    row = sample(graph_of())
    encoded = row.encoded
    assert encoded.numbers.shape[1] == NODE.width
    assert np.isfinite(encoded.numbers).all()
    kinds = NODE.span(encoded.numbers, f"kind_{KINDS[0]}", f"kind_{KINDS[-1]}")
    assert (kinds.sum(axis=1) == 1).all()
    assert encoded.work.shape[1] == WORK.width
    assert encoded.edge_numbers.shape[1] == EDGE.width
    assert len(encoded.totals) == TOTALS.width
    assert len(row.device) == DEVICE.width
    assert len(row.run) == RUN.width


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_column_has_a_name_of_its_own_and_an_origin(table):
    assert len(set(table.names)) == table.width
    assert [field.name for field in table.fields if not field.origin] == []


def test_a_row_needs_a_value_for_every_column_and_no_other():
    values = dict.fromkeys(STEP.names, 1.0)
    assert STEP.row(values).tolist() == [1.0] * STEP.width
    with pytest.raises(ValueError, match="optimizer_bytes"):
        STEP.row({name: 1.0 for name in STEP.names if name != "optimizer_bytes"})
    with pytest.raises(ValueError, match="weather"):
        STEP.row({**values, "weather": 1.0})


def test_a_batch_with_some_of_its_rows_is_a_batch_of_those_rows():
    rows = [sample(graph_of(n)) for n in (1, 2, 1)]
    rows[2] = replace(rows[0], latents=(3, 2, 1))
    some = collate(rows).only(torch.tensor([False, True, True]))
    alone = collate(rows[1:])
    assert some.row.tolist() == alone.row.tolist()
    for name in ("device", "run", "latents", "step", "phases", "number_format"):
        assert torch.equal(getattr(some, name), getattr(alone, name))
    assert torch.equal(some.work[some.call], alone.work[alone.call])
    hidden = some.without_latents(torch.tensor([False, True]))
    assert hidden.latents.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert some.latents.tolist() == [[0, 0, 0], [3, 2, 1]]


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
    assert number_format(get_hardware(hardware), precision) == expected
    assert set(NUMBER_FORMATS) >= {expected}


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
    rate = 2 * lanes * device.multiprocessors * device.boost_clock_hz
    assert rates_of(device, "fp32").sustained_flops_per_s == pytest.approx(rate)


def test_multiprocessors_limit_memory_traffic_on_gpus_alone():
    hbm, gddr = get_hardware("NVIDIA H100-SXM5-80GB"), get_hardware("NVIDIA GeForce RTX 4090")
    # per byte of bandwidth the 4090 has far more multiprocessors and clock
    excess = [rates_of(d, "fp32").issue_bytes_per_s / d.memory_bytes_per_s for d in (hbm, gddr)]
    assert excess[1] > 2.7 * excess[0]
    cpu = get_hardware("Intel Core i9-10940X")
    assert rates_of(cpu, "fp32").issue_bytes_per_s == cpu.memory_bytes_per_s


def test_bfloat16_and_float16_are_one_to_the_network():
    device = get_hardware("NVIDIA A100-SXM4-40GB")
    half, brain = (run_vector(Workload(precision=p), device) for p in ("amp_fp16", "amp_bf16"))
    assert (half == brain).all()


def test_columns_tell_how_far_tiles_are_filled():
    names = ("pad_rows_128", "pad_cols_32", "pad_cols_64", "pad_cols_128", "pad_inner_32")
    net = nn.Sequential(nn.Linear(48, 96, bias=False))
    encoded = sample(trace(net, (torch.zeros(100, 48),))).encoded
    found = {n: encoded.number(n)[0] for n in names}
    expected = {"rows_128": 128 / 100, "cols_32": 1, "cols_64": 128 / 96, "cols_128": 128 / 96}
    expected["inner_32"] = 64 / 48
    for name, factor in expected.items():
        assert found[f"pad_{name}"] == pytest.approx(np.log2(factor) / 4, abs=1e-5)


def test_columns_tell_which_groups_are_a_power_of_two_wide():
    def even(groups, width):
        conv = nn.Conv2d(groups * width, groups * width, 3, groups=groups)
        graph = trace(conv, (torch.zeros(2, groups * width, 5, 5),))
        return sample(graph).encoded.number("group_power_of_2")[0]

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
    views = [one.total("view_calls") for one in (without, found)]
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


def test_half_precision_without_matrix_units_adds_up_in_float32_on_nvidia_and_is_packed_on_radeon():
    def rates(name, precision):
        found = rates_of(get_hardware(name), precision)
        return np.array([found.peak_flops_per_s, found.sustained_flops_per_s])

    for pascal in ("Tesla P100-PCIE-16GB", "NVIDIA GeForce GTX 1080 Ti"):
        assert rates(pascal, "fp16") == pytest.approx(rates(pascal, "fp32"))
    for radeon in ("AMD Radeon RX 6800", "AMD Radeon RX 7900 XTX"):
        assert number_format(get_hardware(radeon), "fp16") == "half_plain"
        assert rates(radeon, "fp16")[1] == pytest.approx(2 * rates(radeon, "fp32")[1])
    assert number_format(get_hardware("AMD Instinct MI300X"), "fp16") == "half_matrix"


def test_float64_of_rdna_3_is_half_of_the_larger_figure():
    xtx = get_hardware("AMD Radeon RX 7900 XTX")
    peak = rates_of(xtx, "fp64").peak_flops_per_s
    assert peak == pytest.approx(xtx.peak_flops_per_s("fp64") / 2, rel=0.01)


# Arrays whose columns have names in `encoding.fields`.
NAMED = {
    "numbers", "work", "totals", "device", "run", "phases", "step", "latents", "edge_attr",
    "edge_numbers",
}  # fmt: skip


def by_position(tree):
    """Lines that read a column of a named array by its number."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Subscript):
            continue
        name = getattr(node.value, "attr", getattr(node.value, "id", ""))
        parts = node.slice.elts[1:] if isinstance(node.slice, ast.Tuple) else []
        if name == "totals" and not parts:
            parts = [node.slice]
        constants = (each for part in parts for each in ast.walk(part))
        if name in NAMED and any(
            isinstance(each, ast.Constant) and isinstance(each.value, int) for each in constants
        ):
            yield node.lineno


@pytest.mark.parametrize("package", ["prenet_gnn", "experiments"])
def test_no_column_is_read_by_its_position(package):
    found = {}
    for path in (ROOT / package).rglob("*.py"):
        lines = list(by_position(ast.parse(path.read_text(encoding="utf-8"))))
        found |= {str(path.relative_to(ROOT)): lines} if lines else {}
    assert not found


def test_a_column_read_by_position_is_seen():
    text = "a = data.work[:, 2:4]\nb = device[batch, 3]\nc = totals[1]\nd = run[rows]\ne = x[:, 1]"
    assert list(by_position(ast.parse(text))) == [1, 2, 3]
