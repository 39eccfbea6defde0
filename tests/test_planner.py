"""Comparing devices and planning runs, on a predictor whose answers are easy to check by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from prenet_gnn.catalogue.prices import hourly_prices
from prenet_gnn.catalogue.spec import Hardware
from prenet_gnn.cli._options import parse_prices
from prenet_gnn.errors import ConfigError, PreNetError
from prenet_gnn.planning import PlanError, PlanRequest, compare, plan
from prenet_gnn.planning.comparison import front
from prenet_gnn.workload.workload import Workload
from tracing import OpGraph, OpNode, Source, TensorSpec

GIB = 2**30
HALF = ("amp_fp16", "amp_bf16", "fp16", "bf16")


def device(name, rate, memory_gib, formats=("fp32", "tf32", "fp16", "bf16"), **more):
    return Hardware(
        name=name,
        vendor="test",
        architecture="test",
        kind="gpu",
        multiprocessors=10,
        memory_bytes=memory_gib * GIB,
        memory_bytes_per_s=1e12,
        peaks=tuple((each, rate) for each in formats),
        **{"compute_capability": "8.0", "tdp_w": 360.0, **more},
    )


FAST = device("Fast", 100.0, 80)
SLOW = device("Slow", 10.0, 16, tdp_w=36.0)
SMALL = device("Small", 50.0, 4)
OLD = device("Old", 5.0, 16, formats=("fp32",), compute_capability="6.0")
DEVICES = (FAST, SLOW, SMALL, OLD)
PRICES = {"Fast": 36.0, "Slow": 0.36, "Small": 3.6}


SPEC = TensorSpec((8,))
RELU = OpNode(
    0, "relu", "aten.relu.default", "pointwise", "", (Source("input", name="x"),), (SPEC,), (SPEC,)
)


class Graph(OpGraph):
    """A graph of one call that only knows its batch size; a sample needs one GiB in float32."""

    def __init__(self, batch_size, nodes=(RELU,), **others):
        super().__init__(nodes, batch_size=batch_size, **{"mode": "infer", **others})

    def with_batch_size(self, batch_size):
        return Graph(batch_size)


class Predictor:
    """At rate 1: half a second fixed, one second per sample, half of that in half precision."""

    def __init__(self, context_gib=0):
        self.asked, self.context_bytes = 0, context_gib * GIB

    def predict_many(self, graphs, hardware, workloads):
        return [
            self.predict(g, hardware=h, workload=w)
            for g, h, w in zip(graphs, hardware, workloads, strict=True)
        ]

    def predict(self, graph, hardware, workload):
        self.asked += 1
        if hardware.name == "Broken":
            raise PreNetError("no idea about Broken")
        scale = 0.5 if workload.precision in HALF else 1.0
        if workload.compiled:
            scale *= 0.8
        rate = hardware.stated_peak("fp32")
        work_s, optimizer_s = scale * graph.batch_size / rate, 0.5 / rate
        peak = int(graph.batch_size * GIB * (0.5 if workload.precision in HALF else 1.0))
        seconds = work_s + optimizer_s
        return SimpleNamespace(
            seconds=seconds,
            low_s=0.9 * seconds,
            high_s=1.2 * seconds,
            forward_s=work_s / 3,
            backward_s=work_s * 2 / 3,
            optimizer_s=optimizer_s,
            peak_memory_bytes=peak,
            memory={"device_bytes": peak + self.context_bytes},
            calls=(),
            memory_moments=(),
            fits=peak + self.context_bytes <= hardware.memory_bytes,
            hardware=hardware.name,
        )


@pytest.fixture(autouse=True)
def catalogue(monkeypatch):
    """Four devices instead of the real catalogue."""
    by_name = {each.name: each for each in DEVICES}
    monkeypatch.setattr("prenet_gnn.planning.devices.list_hardware", lambda: DEVICES)
    for user in ("planning.devices", "catalogue.prices"):
        monkeypatch.setattr(f"prenet_gnn.{user}.get_hardware", by_name.__getitem__)
    monkeypatch.setattr("prenet_gnn.catalogue.prices.read_offers", dict)


def best(**fields):
    wanted = {"samples": 1000, "prices": PRICES, "compiled": (False,), "sampler": "none", **fields}
    return plan(Graph(1), Predictor(), Workload(), PlanRequest(**wanted))


def test_compare_ranks_by_time_and_what_does_not_fit_goes_last():
    result = compare(Graph(8), Predictor(), Workload(), prices=PRICES)
    assert [row.hardware for row in result.devices] == ["Fast", "Slow", "Old", "Small"]
    fast = result.devices[0]
    assert fast.seconds == pytest.approx(0.085)
    assert fast.samples_per_s == pytest.approx(8 / 0.085)
    assert fast.usd_per_million_samples == pytest.approx(1e6 * 0.01 * 0.085 / 8)
    assert fast.cost_per_epoch_usd is None
    assert not result.devices[-1].fits


def test_compare_by_cost_puts_devices_without_a_price_behind():
    result = compare(Graph(2), Predictor(), Workload(), prices=PRICES, sort="cost", samples=500)
    assert [row.hardware for row in result.devices] == ["Slow", "Small", "Fast", "Old"]
    slow = result.devices[0]
    assert slow.cost_per_epoch_usd == pytest.approx(500 * 0.0001 * 0.25 / 2)
    assert slow.price_source == "given by the user"
    assert result.devices[-1].usd_per_hour is None


def test_compare_marks_the_devices_that_none_beats():
    result = compare(Graph(2), Predictor(), Workload(), prices=PRICES)
    assert {row.hardware for row in result.devices if row.pareto} == {"Fast", "Slow", "Small"}
    dear = compare(Graph(2), Predictor(), Workload(), prices={**PRICES, "Small": 90.0})
    assert {row.hardware for row in dear.devices if row.pareto} == {"Fast", "Slow"}


def test_compare_leaves_out_what_a_device_cannot_do_and_says_why():
    result = compare(Graph(2), Predictor(), Workload(precision="amp_bf16"))
    assert "Old" not in [row.hardware for row in result.devices]
    assert result.skipped == {"Old": "Old has no bf16 arithmetic."}
    compiled = compare(Graph(2), Predictor(), Workload(compiled=True))
    assert "7.0" in compiled.skipped["Old"]


def test_compare_goes_on_after_a_device_that_fails():
    broken = device("Broken", 1.0, 16)
    result = compare(Graph(2), Predictor(), Workload(), devices=[broken, FAST])
    assert [row.hardware for row in result.devices] == ["Fast"]
    assert result.skipped == {"Broken": "no idea about Broken"}


def test_the_front_holds_what_no_point_beats():
    assert front([(1, 5), (2, 5), (2, 3), (3, 4), (4, 1), (1, 5)]) == {0, 2, 4}
    assert front([]) == set()


def test_the_fastest_plan_fills_the_memory_of_the_fastest_device():
    result = best(objective="time")
    # 80 GiB hold 128 samples in half precision; 1000 samples take 8 steps of 128
    assert (result.best.hardware, result.best.batch_size) == ("Fast", 128)
    assert result.best.precision in ("amp_fp16", "amp_bf16")
    assert result.best.total_s == pytest.approx(8 * (64 + 0.5) / 100)
    assert result.best.total_low_s == pytest.approx(0.9 * result.best.total_s)
    assert result.best.total_high_s == pytest.approx(1.2 * result.best.total_s)
    assert [option.hardware for option in result.alternatives] == ["Small", "Slow", "Old"]
    times = [option.total_s for option in (result.best, *result.alternatives)]
    assert times == sorted(times)


def test_a_batch_that_fits_without_the_context_only_gives_way_to_a_smaller_one():
    request = PlanRequest(
        samples=1000, devices=("Slow",), precisions=("fp32",), compiled=(False,), sampler="none"
    )
    tight = plan(Graph(1), Predictor(context_gib=1), Workload(), request)
    roomy = plan(Graph(1), Predictor(), Workload(), request)
    assert (tight.best.batch_size, roomy.best.batch_size) == (8, 16)


def test_the_best_batch_is_not_always_the_largest():
    # 33 samples: 32 takes two steps of which the second is nearly empty, 16 and 1 waste less
    result = best(samples=33, devices=("Slow",), objective="time")
    assert result.best.batch_size == 1 or result.best.total_s <= 3 * (8 + 0.5) / 10
    every = [
        best(samples=33, devices=("Slow",), batch_sizes=(n,)).best for n in (1, 2, 4, 8, 16, 32)
    ]
    assert result.best.total_s == min(option.total_s for option in every)


def test_the_cheapest_plan_needs_a_price():
    result = best(objective="cost")
    assert result.best.hardware == "Slow"
    assert result.best.cost_usd == pytest.approx(result.best.total_s * 0.36 / 3600)
    assert [option.hardware for option in result.alternatives] == ["Small", "Fast"]
    costs = [option.cost_usd for option in (result.best, *result.alternatives)]
    assert costs == sorted(costs)
    with pytest.raises(PlanError, match="price"):
        best(objective="cost", prices={})


def test_the_thriftiest_plan_uses_the_rated_power():
    result = best(objective="energy", devices=("Fast", "Slow"))
    assert result.best.energy_kwh == pytest.approx(
        result.best.total_s * {"Fast": 360.0, "Slow": 36.0}[result.best.hardware] / 3.6e6
    )


def test_a_global_batch_is_kept_by_accumulation():
    result = best(global_batch=256, objective="time", devices=("Fast",))
    chosen = result.best
    assert chosen.batch_size * chosen.accumulation == 256
    # one optimizer step per 256 samples, whatever fits into memory
    assert chosen.step_s == pytest.approx((256 * 0.5 + 0.5) / 100)
    assert chosen.total_s == pytest.approx(4 * chosen.step_s)


def test_limits_are_kept_and_named():
    free = best(objective="cost")
    fast = best(objective="time")
    limit_s = 0.5 * free.best.total_s
    result = best(objective="cost", deadline_s=limit_s)
    assert result.best.total_s <= limit_s
    assert result.best.cost_usd > free.best.cost_usd
    assert result.binding == (
        f"the deadline binds: without it Slow with batch {free.best.batch_size} in "
        f"{free.best.precision} would do it in {free.best.total_s / 3600:,.2f} h and "
        f"{free.best.cost_usd:,.2f} USD.",
    )
    assert best(objective="time", deadline_s=10 * fast.best.total_s).binding == ()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"deadline_s": 1e-3}, "the deadline binds: the fastest option, Fast"),
        ({"budget_usd": 1e-6}, "the budget binds: the cheapest option, Slow"),
        ({"deadline_s": 6.0, "budget_usd": 0.006}, "deadline and budget bind together"),
        ({"batch_sizes": (1024,), "samples": 5000}, "memory binds: even batch 1024"),
        ({"devices": ("Old",), "precisions": ("amp_bf16",)}, "can run any of the precisions"),
    ],
)
def test_a_plan_that_cannot_be_says_what_binds(fields, words):
    with pytest.raises(PlanError, match=words):
        best(**fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"objective": "fame"}, "Allowed: time, cost, energy"),
        ({"samples": 0}, "samples must be above zero"),
        ({"epochs": -1}, "epochs must be above zero"),
        ({"budget_usd": float("nan")}, "budget_usd must be above zero"),
        ({"batch_sizes": (0,)}, "batch sizes"),
        ({"precisions": ("fp7",)}, "precision 'fp7'"),
        ({"global_batch": 7, "batch_sizes": (2, 4)}, "must divide the global batch 7"),
        ({"samples": 4, "batch_sizes": (8,)}, "above the 4 samples"),
    ],
)
def test_a_wrong_request_is_refused(fields, words):
    with pytest.raises(ConfigError, match=words):
        best(**fields)


def test_the_trade_off_goes_from_fast_to_cheap():
    curve = best(objective="time").trade_off
    assert len(curve) >= 2
    assert [o.total_s for o in curve] == sorted(o.total_s for o in curve)
    assert [o.cost_usd for o in curve] == sorted((o.cost_usd for o in curve), reverse=True)


def test_prices_are_read_and_checked():
    assert parse_prices(["Tesla T4=0.35", "A=B=2"]) == {"Tesla T4": 0.35, "A=B": 2.0}
    for text in ("Tesla T4", "=3", "T4=cheap"):
        with pytest.raises(ConfigError, match="NAME=USD_PER_HOUR"):
            parse_prices([text])
    with pytest.raises(ConfigError, match="zero or more"):
        hourly_prices(DEVICES, {"Fast": -1.0})
