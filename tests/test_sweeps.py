"""Sweeps: their points, resuming after a kill, limits, and the scripts around them."""

import dataclasses
import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments import gpu_sweep, pack_records, repeatability
from prenet_gnn.errors import ConfigError
from prenet_gnn.measuring import (
    MeasureError,
    SweepSettings,
    load_sweep,
    read_records,
    run_sweep,
    runner,
    supervised_sweep,
    sweep_run,
)
from prenet_gnn.measuring.errors import DeviceLostError
from prenet_gnn.measuring.models import parse_spec
from prenet_gnn.measuring.runner import base_record

ROOT = Path(__file__).resolve().parents[1]
SWEEPS = sorted((ROOT / "experiments" / "sweeps").glob("*.toml"))
CPU = SweepSettings(device="cpu", progress=False)
SIX = """
seed = 1
threads = 1
max_iteration_s = 5.0
[[models]]
specs = ["net:a", "net:b"]
batch_sizes = [1, 2, 4]
workloads = [{ mode = "infer", optimizer = "none" }]
"""


@pytest.fixture
def six(tmp_path):
    path = tmp_path / "six.toml"
    path.write_text(SIX)
    return path


@pytest.fixture(autouse=True)
def known_device(monkeypatch):
    monkeypatch.setattr(runner, "_hardware", lambda device: ("Test CPU", None))


def fake(seconds=0.01, fail=None, seen=None):
    """Stands in for a measurement; `fail` maps (model, batch size) to a status or an exception."""

    def measure(point, device, effort):
        if seen is not None:
            seen.append((point.model, point.batch_size))
        found = (fail or {}).get((point.model, point.batch_size))
        if isinstance(found, BaseException):
            raise found
        status = found or "ok"
        return dataclasses.replace(
            base_record(point, device),
            threads=effort.threads,
            status=status,
            seconds=seconds if status == "ok" else None,
        )

    return measure


@pytest.mark.parametrize("path", SWEEPS, ids=lambda p: p.stem)
def test_sweep_files_hold_valid_points(path):
    sweep = load_sweep(path)
    assert len(set(sweep.points)) == len(sweep.points)
    for point in sweep.points[:200]:
        if point.model.startswith(("layer:", "net:")):
            parse_spec(point.model)


@pytest.mark.parametrize(
    ("name", "least"),
    [("layers", 3000), ("models", 300), ("gpu", 400), ("gpu_layers", 1500)],
)
def test_sweeps_are_large_enough(name, least):
    assert len(load_sweep(name).points) >= least


def test_same_file_same_points(six):
    assert load_sweep(six).points == load_sweep(six).points


def test_batch_sizes_of_a_series_rise(six):
    batches = [p.batch_size for p in load_sweep(six).points if p.model == "net:a"]
    assert batches == [1, 2, 4]


def test_all_points_once_and_never_twice(six, tmp_path):
    out = tmp_path / "m.jsonl"
    summary = run_sweep(six, out, CPU, measure=fake())
    assert (summary.measured, summary.known, summary.remaining) == (6, 0, 0)
    seen = []
    summary = run_sweep(six, out, CPU, measure=fake(seen=seen))
    assert (summary.measured, summary.known) == (0, 6)
    assert seen == []
    assert len({r.key for r in read_records(out)}) == 6


def test_time_limit_leaves_the_rest(six, tmp_path):
    ticks = iter(range(0, 1000, 40))
    summary = run_sweep(
        six,
        tmp_path / "m.jsonl",
        dataclasses.replace(CPU, minutes=2),
        measure=fake(),
        now=lambda: next(ticks),
    )
    assert summary.measured == 2
    assert summary.remaining == 4


@pytest.mark.parametrize("status", ["oom", "slow"])
def test_what_does_not_fit_spares_larger_batches(six, tmp_path, status):
    out = tmp_path / "m.jsonl"
    measure = fake(fail={("net:a", 2): "oom"}) if status == "oom" else fake(seconds=9.0)
    summary = run_sweep(six, out, CPU, measure=measure)
    assert summary.skipped == (1 if status == "oom" else 4)
    again = run_sweep(six, out, CPU, measure=measure)
    assert again.measured == 0
    assert again.skipped == summary.skipped


@pytest.mark.parametrize("error", [MeasureError("odd"), ValueError("two\nlines")])
def test_an_error_is_recorded_and_the_sweep_goes_on(six, tmp_path, error):
    out = tmp_path / "m.jsonl"
    summary = run_sweep(six, out, CPU, measure=fake(fail={("net:b", 1): error}))
    assert summary.failed == 1
    assert summary.measured == 6
    failed = [r for r in read_records(out) if r.status == "error"]
    assert len(failed) == 1
    assert "\n" not in failed[0].error


def test_a_point_that_kills_the_process_is_given_up(six, tmp_path):
    out = tmp_path / "m.jsonl"
    killer = fake(fail={("net:a", 1): KeyboardInterrupt()})
    for _ in range(sweep_run.MAX_ATTEMPTS):
        with pytest.raises(KeyboardInterrupt):
            run_sweep(six, out, CPU, measure=killer)
    summary = run_sweep(six, out, CPU, measure=killer)
    assert summary.failed == 1
    crashed = [r for r in read_records(out) if r.status == "crash"]
    assert [(r.model, r.batch_size) for r in crashed] == [("net:a", 1)]


CHILD = """
import dataclasses, sys, time
from prenet_gnn.measuring import SweepSettings, runner, run_sweep
runner._hardware = lambda device: ("Test CPU", None)
def measure(point, device, effort):
    time.sleep(0.05)
    base = runner.base_record(point, device)
    return dataclasses.replace(base, threads=effort.threads, seconds=0.01, samples_s=(0.01,) * 200)
settings = SweepSettings(device="cpu", progress=False)
run_sweep(sys.argv[1], sys.argv[2], settings, measure=measure)
"""


def test_kill_and_resume_leave_no_torn_and_no_double_line(tmp_path):
    sweep, out = tmp_path / "s.toml", tmp_path / "m.jsonl"
    sweep.write_text(SIX.replace("[1, 2, 4]", str(list(range(1, 21)))))
    command = [sys.executable, "-c", CHILD, str(sweep), str(out)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(command, env=environment)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (out.exists() and out.stat().st_size > 6000):
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = len(read_records(out))
    assert 0 < before < 40
    summary = run_sweep(sweep, out, CPU, measure=fake())
    records = read_records(out)
    assert summary.known == before
    assert len(records) == len({r.key for r in records}) == 40


DEADLY = """
import os, signal, sys, torch

def net(batch_size=1):
    if batch_size == 2 and "tracing.zoo" in sys.modules and os.environ.get("DEADLY"):
        os.kill(os.getpid(), signal.SIGSEGV)
    return torch.nn.Linear(4, 4), (torch.empty(batch_size, 4),)
"""


def test_a_point_that_kills_the_process_does_not_end_a_supervised_sweep(tmp_path, monkeypatch):
    (tmp_path / "deadly.py").write_text(DEADLY)
    (tmp_path / "s.toml").write_text(
        "warmup_s = 0.0\nsample_s = 0.0\nthreads = 1\n[[models]]\n"
        f'specs = ["{tmp_path}/deadly.py:net"]\nbatch_sizes = [1, 2, 3]\n'
        'workloads = [{ mode = "infer", optimizer = "none" }]\n'
    )
    monkeypatch.setenv("DEADLY", "1")
    out = tmp_path / "m.jsonl"
    summary = supervised_sweep(tmp_path / "s.toml", out, device="cpu", progress=False)
    # what is larger than a point that ended the process is left out
    assert [(r.batch_size, r.status) for r in read_records(out)] == [(1, "ok"), (2, "crash")]
    assert (summary.measured, summary.failed, summary.skipped, summary.known) == (2, 1, 1, 0)
    assert "started again 2 times" in summary.notes[-1]
    with pytest.raises(ConfigError, match="no sweep 'none'"):
        supervised_sweep("none", out, device="cpu", progress=False)


def test_a_lost_gpu_ends_the_process_and_not_every_further_point(six, tmp_path):
    out = tmp_path / "m.jsonl"
    lost = RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(DeviceLostError):
        run_sweep(six, out, CPU, measure=fake(fail={("net:a", 1): lost}))
    assert [r.status for r in read_records(out)].count("error") == 1
    summary = run_sweep(six, out, CPU, measure=fake())
    assert summary.remaining == 0
    assert len(read_records(out)) == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no \\[\\[layers\\]\\]"),
        ("colour = 1", "unknown key 'colour'"),
        ("[[models]]\nspecs = []", "needs 'specs'"),
        ('[[models]]\nspecs = ["x"]\nworkloads = [{ speed = 1 }]', "workload keys are mode"),
        ('[[models]]\nspecs = ["x"]\nworkloads = [{ mode = "trian" }]', "Did you mean 'train'"),
        ('[[layers]]\nfamily = "conf"', "Known: attention"),
        ('[[layers]]\nfamily = "dense"\nmax_gflops = 0.0', "within its limits"),
        ("=", "cannot read"),
    ],
)
def test_bad_sweep_files(tmp_path, text, message):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_sweep(path)


def test_unknown_sweep_lists_the_known():
    with pytest.raises(ConfigError, match="gpu, gpu_compiled, gpu_layers, layers, models, small"):
        load_sweep("mdels")


def test_every_point_is_measured_twice_in_a_row(six, tmp_path, capsys, monkeypatch):
    seen, seconds = [], iter([0.010, 0.011] * 6)

    def measure(point, device, effort):
        return fake(next(seconds), seen=seen)(point, device, effort)

    monkeypatch.setattr(repeatability, "run_sweep", functools.partial(run_sweep, measure=measure))
    again = tmp_path / "again.jsonl"
    repeatability.main([str(again), "--measure", "5", "--sweep", str(six)])
    assert len(seen) == 12
    assert seen[::2] == seen[1::2]
    assert [len(read_records(p)) for p in (again, repeatability.first_of(again))] == [6, 6]
    printed = capsys.readouterr().out
    assert "in a row" in printed
    assert "10.0%" in printed
    assert "with committed records" not in printed
    # all is measured: a second call only reads
    repeatability.main([str(again), "--measure", "5", "--sweep", str(six)])
    assert len(seen) == 12


def test_gpu_script_in_its_small_setting(tmp_path, capsys):
    """The whole script with real measurements on the CPU, then packing."""
    arguments = ["--small", "--out", str(tmp_path), "--quiet"]
    gpu_sweep.main(arguments)
    assert "11 measured" in capsys.readouterr().out
    records = read_records(tmp_path / "models.jsonl")
    assert [r.error for r in records if r.status != "ok"] == []
    assert all(r.seconds > 0 and r.threads == 1 for r in records)
    gpu_sweep.main(arguments)
    assert "11 known before" in capsys.readouterr().out

    target = tmp_path / "m.jsonl.gz"
    pack_records.main([str(tmp_path / "models.jsonl"), str(target)])
    first = target.read_bytes()
    assert len(read_records(target)) == 11
    pack_records.main([str(tmp_path / "models.jsonl"), str(target)])
    assert target.read_bytes() == first


def test_gpu_script_without_a_gpu_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit, match=r"^gpu_sweep: .*no CUDA device[^\n]*$"):
        gpu_sweep.main(["--out", str(tmp_path)])
