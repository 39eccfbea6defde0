"""Timing with a fake clock, and tiny real runs on the CPU."""

import dataclasses
import json
import random

import pytest
import torch

from prenet_gnn import Workload
from prenet_gnn.errors import ConfigError
from prenet_gnn.measuring import (
    Effort,
    MeasureError,
    Point,
    facts,
    measure_model,
    runner,
    timing,
)
from prenet_gnn.measuring.memory import saved_for_backward_bytes

QUICK = Effort(sample_s=0.0, min_samples=2, warmup_s=0.0)
ONCE = dataclasses.replace(QUICK, iterations=1)


class FakeClock:
    """Time passes only when a step says so; the device works behind the host."""

    asynchronous = True

    def __init__(self):
        self.host = 0.0
        self.device = 0.0
        self.waits = 0

    def work(self, host_s, device_s):
        self.host += host_s
        self.device = max(self.device, self.host) + device_s

    def mark(self):
        return max(self.device, self.host)

    def synchronize(self):
        self.waits += 1
        self.host = max(self.host, self.device)

    def between(self, start, end):
        return end - start

    def now(self):
        return self.host

    def busy_s(self):
        return 0.0


def test_samples_are_device_time_when_the_device_is_slower():
    clock = FakeClock()
    times, busy = timing.sample(lambda: clock.work(0.001, 0.010), clock, 5)
    assert times == pytest.approx([0.010] * 5)
    assert busy == []


def test_samples_are_host_time_when_the_host_is_slower():
    clock = FakeClock()
    times, _ = timing.sample(lambda: clock.work(0.010, 0.001), clock, 5)
    assert times == pytest.approx([0.010] * 5)


def test_nothing_waits_between_samples():
    clock = FakeClock()
    timing.sample(lambda: clock.work(0.001, 0.010), clock, 50)
    assert clock.waits == 2


def test_synced_samples_tell_issue_from_whole_time():
    clock = FakeClock()
    whole, issue = timing.sample_synced(lambda: clock.work(0.002, 0.010), clock, 3)
    assert whole == pytest.approx([0.012] * 3)
    assert issue == pytest.approx([0.002] * 3)


def test_phases_add_up():
    clock = FakeClock()

    def step(mark):
        clock.work(0.0, 0.003)
        mark("forward")
        clock.work(0.0, 0.006)
        mark("backward")

    assert timing.sample_phases(step, clock, 4) == pytest.approx(
        {"forward": 0.003, "backward": 0.006}
    )


def test_warmup_lasts_until_times_settle():
    clock = FakeClock()
    times = iter([9.0, 1.0, 0.5, 0.3, 0.2, 0.11, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1])
    warmup = timing.warm_up(lambda: clock.work(0.0, next(times)), clock, limit_s=100.0)
    assert warmup.stable
    assert warmup.first_s == pytest.approx(9.0)
    assert warmup.typical_s == pytest.approx(0.1)
    assert warmup.iterations == 11


def test_warmup_ends_at_its_limit_and_says_so():
    clock = FakeClock()
    rng = random.Random(0)
    warmup = timing.warm_up(lambda: clock.work(0.0, rng.uniform(1, 9)), clock, limit_s=5.0)
    assert warmup.iterations == timing.MIN_WARMUP
    assert not warmup.stable


@pytest.mark.parametrize(
    ("typical_s", "budget_s", "asked", "count"),
    [(0.1, 1.0, None, 10), (10.0, 1.0, None, 5), (1e-5, 1.0, None, 200), (1.0, 1.0, 7, 7)],
)
def test_sample_count(typical_s, budget_s, asked, count):
    assert timing.sample_count(typical_s, budget_s, asked) == count


def test_drift_and_outliers_are_told_apart():
    steady = [1.0, 1.01, 0.99] * 5
    assert not timing.summarize(steady).drift
    assert timing.summarize(steady).outliers == 0
    assert timing.summarize([1.0 + 0.02 * i for i in range(15)]).drift
    spiked = timing.summarize([*steady, 4.0])
    assert spiked.outliers == 1
    assert not spiked.drift
    assert spiked.median_s == pytest.approx(1.0, rel=0.02)
    assert spiked.p10_s <= spiked.median_s <= spiked.p90_s


def test_garbage_collection_is_off_while_timing():
    import gc

    with timing.quiet_collector():
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.fixture
def known_device(monkeypatch):
    """Spares tests the micro-benchmarks of the device entry."""
    monkeypatch.setattr(runner, "_hardware", lambda device: ("Test CPU", None))


@pytest.mark.parametrize(
    ("spec", "mode", "phases"),
    [
        ("layer:dense?in=8&out=4", "train", "zero_grad+forward+backward+optimizer"),
        ("net:mlp?depth=1&width=8", "train", "zero_grad+forward+loss+backward+optimizer"),
        ("layer:positional?dim=8", "infer", "forward"),
    ],
)
def test_real_run_on_the_cpu(known_device, spec, mode, phases):
    workload = Workload(mode=mode, optimizer="adamw" if mode == "train" else "none")
    effort = dataclasses.replace(QUICK, iterations=3, threads=1)
    record = measure_model(Point(spec, 2, None, 8, workload), "cpu", effort)
    assert record.status == "ok"
    assert record.timed == phases
    assert len(record.samples_s) == 3
    assert 0 < record.p10_s <= record.seconds <= record.p90_s
    for phase in phases.split("+"):
        assert getattr(record, f"{phase}_s") > 0
    assert record.threads == 1
    assert record.cpu_s > 0
    assert record.host_s is None
    assert record.workload.framework.startswith("torch-2.")
    assert record.machine["torch"] == torch.__version__
    assert record.peak_memory_bytes >= record.param_bytes


@pytest.mark.parametrize(
    ("name", "device_type", "found"),
    [
        ("NVIDIA GeForce RTX 3090", "cuda", "NVIDIA GeForce RTX 3090"),
        # macOS calls the processor and the GPU of the chip alike
        ("Apple M1", "mps", "Apple M1"),
        ("Apple M1", "cpu", None),
        ("Intel Core i9-10940X", "cpu", "Intel Core i9-10940X"),
        ("Intel Core i9-10940X", "cuda", None),
        ("i9-10940X", "cpu", None),
        ("no such device", "cuda", None),
    ],
)
def test_a_device_is_known_by_an_entry_of_its_kind(name, device_type, found):
    assert facts.catalogue_name(name, device_type) == found


def test_a_device_object_is_as_good_as_its_name(known_device):
    workload = Workload(mode="infer", optimizer="none")
    record = measure_model(Point("layer:dense", 1, workload=workload), torch.device("cpu"))
    assert record.device_type == "cpu"


def test_saved_bytes_by_hand(known_device):
    """A layer's input is kept for the weight's gradient: 4 x 8 floats; weights do not count."""
    record = measure_model(Point("layer:dense?in=8&out=16", 4), "cpu", QUICK)
    assert record.saved_bytes == 4 * 8 * 4
    assert record.param_bytes == (8 * 16 + 16) * 4


def test_saved_storages_count_once():
    layer = torch.nn.Linear(8, 8)
    x = torch.randn(4, 8, requires_grad=True)
    assert saved_for_backward_bytes(layer, lambda: layer(x) + layer(x)) == 4 * 8 * 4


def test_cpu_peak_by_hand(known_device):
    """Adam without its step: input, weights, and the output while its gradient is held."""
    workload = Workload(mode="infer", optimizer="none")
    record = measure_model(Point("layer:dense?in=256&out=512", 64, workload=workload), "cpu")
    inputs, output = 64 * 256 * 4, 64 * 512 * 4
    assert record.peak_memory_bytes == record.param_bytes + inputs + output


@pytest.mark.parametrize("precision", ["bf16", "amp_bf16", "fp64"])
def test_precisions_run(known_device, precision):
    point = Point("net:mlp?depth=1&width=8", 2, workload=Workload(precision=precision))
    record = measure_model(point, "cpu", QUICK)
    assert record.precision == precision
    assert record.seconds > 0


@pytest.mark.parametrize("kind", ["conv", "attention", "embedding", "layernorm", "batchnorm"])
def test_every_layer_family_trains(known_device, kind):
    point = Point(f"layer:{kind}", 2, 8, 8, Workload(channels_last=kind == "conv"))
    record = measure_model(point, "cpu", ONCE)
    assert record.backward_s > 0
    assert record.input_grad


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
def test_recurrent_kinds(known_device, kind):
    for spec in (f"layer:recurrent?kind={kind}&hidden=8", f"net:recurrent?kind={kind}&vocab=50"):
        assert measure_model(Point(spec, 2, seq_len=4), "cpu", ONCE).seconds > 0


def test_profile_names_operators(known_device):
    effort = dataclasses.replace(QUICK, profile=True)
    record = measure_model(Point("layer:dense", 2), "cpu", effort)
    names = [name for name, _, _ in record.operators]
    assert any("mm" in name for name in names)
    seconds = [own for _, own, _ in record.operators]
    assert seconds == sorted(seconds, reverse=True)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to"),
        MemoryError(),
    ],
)
def test_out_of_memory_is_a_result(known_device, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(runner, "make_step", fail)
    record = measure_model(Point("layer:dense", 1 << 20), "cpu")
    assert record.oom
    assert record.seconds is None
    assert json.loads(record.to_json())["status"] == "oom"


def test_huge_tensor_is_out_of_memory(known_device):
    record = measure_model(Point("layer:dense?in=64", 1 << 44), "cpu")
    assert record.oom


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("layer:dens", "Did you mean 'layer:dense'"),
        ("layer:dense?inn=3", "Did you mean 'in'"),
        ("layer:dense?in=x", "whole number"),
        ("layer:attention?dim=10&heads=3", "multiple of heads"),
        ("layer:conv?padding=odd", "same, valid"),
    ],
)
def test_bad_specs_are_one_clear_line(known_device, spec, text):
    with pytest.raises(MeasureError, match=text) as raised:
        measure_model(Point(spec, 1), "cpu", QUICK)
    assert "\n" not in str(raised.value)


def test_bad_settings(known_device):
    with pytest.raises(MeasureError, match="cannot be measured"):
        measure_model(Point("layer:dense", 1), "meta")
    with pytest.raises(MeasureError, match="not known"):
        measure_model(Point("layer:dense", 1), "tpux")
    with pytest.raises(ConfigError, match="tf32 needs a CUDA device"):
        measure_model(Point("layer:dense", 1, workload=Workload(precision="tf32")), "cpu")
    with pytest.raises(MeasureError, match="at least 1"):
        Effort(iterations=0)


def test_settings_are_put_back(known_device):
    before = (torch.get_num_threads(), torch.backends.cudnn.benchmark)
    measure_model(Point("layer:dense", 1), "cpu", dataclasses.replace(QUICK, threads=1))
    assert (torch.get_num_threads(), torch.backends.cudnn.benchmark) == before


def test_counting_saved_bytes_lets_go_of_them():
    """An operator that saves its own output must not be kept alive by what counted it."""
    import gc
    import weakref

    layer = torch.nn.Linear(8, 8)
    alive = []

    def forward():
        output = layer(torch.randn(4, 8)).relu()
        alive.append(weakref.ref(output.untyped_storage()))
        return output

    assert saved_for_backward_bytes(layer, forward) == 2 * 4 * 8 * 4
    gc.collect()
    assert alive[0]() is None
