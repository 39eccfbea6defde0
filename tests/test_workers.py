"""Pools whose workers die, without starting any: who is blamed, and who is tried again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prenet_gnn import data
from prenet_gnn.cli import main
from prenet_gnn.data import pool
from prenet_gnn.data.keys import GraphKey, error_path, graph_folder, graph_path
from prenet_gnn.errors import DataError
from prenet_gnn.measuring import device_entry
from prenet_gnn.predictor import bulk
from prenet_gnn.predictor.jobs import GraphKey as JobKey


class InProcess:
    """An executor that works at once, in this process."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *words: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*words))
        except BrokenProcessPool as error:
            future.set_exception(error)
        return future

    def shutdown(self, **_: object) -> None:
        pass


GOOD = [GraphKey("timm", name) for name in ("a", "b")]
DEADLY = GraphKey("timm", "deadly")


def tracing_that(kills: Callable[[GraphKey], bool], root: Path) -> Callable[..., None]:
    def trace_keys(keys: list[GraphKey], folder: Path, _: object) -> None:
        for key in keys:
            marker = graph_folder(root) / f"{key.stem}.pid999999999.running"
            marker.parent.mkdir(parents=True, exist_ok=True)
            if kills(key):
                marker.write_text(json.dumps(dict(zip(FIELDS, key_values(key), strict=True))))
                raise BrokenProcessPool("a worker died")
            graph_path(key, root).write_bytes(b"graph")

    return trace_keys


FIELDS = ("library", "model", "image_size", "seq_len", "mode", "attention")


def key_values(key: GraphKey) -> list[Any]:
    return [getattr(key, field) for field in FIELDS]


def test_a_model_that_kills_its_worker_three_times_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "ProcessPoolExecutor", InProcess)
    monkeypatch.setattr(pool, "trace_keys", tracing_that(lambda key: key == DEADLY, tmp_path))
    job = pool.Job(tmp_path, None, None)
    job.run_pool([[GOOD[0], DEADLY], [GOOD[1]]], 2, lambda count: None)
    assert job.deaths == {DEADLY: pool.DEATHS}
    assert "died" in error_path(DEADLY, tmp_path).read_text()
    assert all(graph_path(key, tmp_path).exists() for key in GOOD)
    assert not [*graph_folder(tmp_path).glob("*.running")]


def test_workers_that_never_start_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise BrokenProcessPool("no worker started")

    monkeypatch.setattr(pool, "ProcessPoolExecutor", InProcess)
    monkeypatch.setattr(pool, "trace_keys", never)
    with pytest.raises(DataError, match="do not start"):
        pool.Job(tmp_path, None, None).run_pool([list(GOOD)], 1, lambda count: None)


def test_time_that_is_up_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "trace_keys", pytest.fail)
    job = pool.Job(tmp_path, None, 0.0)
    job.run_here([list(GOOD)], lambda count: None)
    job.run_pool([list(GOOD)], 1, lambda count: None)


def test_a_marker_belongs_to_a_process() -> None:
    import os

    assert pool.is_in_use(Path(f"x.pid{os.getpid()}.running"))
    assert not pool.is_in_use(Path("x.pid999999999.running"))
    assert not pool.is_in_use(Path("x.running"))


def test_a_job_that_kills_its_process_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [JobKey(name) for name in ("a", "deadly", "b", "c")]

    def trace_sizes(key: JobKey, sizes: tuple[int, ...]) -> dict[int, str]:
        if key.model == "deadly":
            raise BrokenProcessPool("a worker died")
        return dict.fromkeys(sizes, f"graph of {key.model}")

    monkeypatch.setattr(bulk, "_pool", InProcess)
    monkeypatch.setattr(bulk, "trace_sizes", trace_sizes)
    found = dict(bulk.trace_all({key: (1, 2) for key in keys}, 2))
    assert set(found) == set(keys)
    assert all("ended abruptly" in text for text in found[keys[1]].values())
    for key in (keys[0], *keys[2:]):
        assert found[key] == {1: f"graph of {key.model}", 2: f"graph of {key.model}"}


def test_what_data_commands_print(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from prenet_gnn.data.graphs import CacheReport

    fetched: list[Path] = []
    monkeypatch.setattr(data, "fetch_sources", fetched.append, raising=False)
    assert main(["data", "fetch", str(tmp_path)]) == 0
    assert fetched == [tmp_path]
    report = CacheReport(requested=3, present=1, traced=1, failed={DEADLY: "no such luck"})
    monkeypatch.setattr(data, "cache_measurements", lambda *_, **__: report, raising=False)
    assert main(["data", "cache", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "3 graphs: 1 there, 1 traced now",
        f"{DEADLY.stem}: no such luck",
    ]
    monkeypatch.setattr(data, "find_data_dir", lambda folder: tmp_path, raising=False)
    problems = [f"t.csv line {n}: wrong" for n in range(25)]
    monkeypatch.setattr(data, "check_tables", lambda folder: problems, raising=False)
    assert main(["data", "check"]) == 1
    output, error = capsys.readouterr()
    assert output.splitlines() == [*problems[:20], "and 5 more"]
    assert "25 problems" in error
    problems.clear()
    assert main(["data", "check"]) == 0
    assert "no problems" in capsys.readouterr().out


class NVMLError(Exception):
    pass


def nvml(**changes: Any) -> SimpleNamespace:
    """The library of the driver, as far as an entry asks it."""
    answers = {
        "NVMLError": NVMLError,
        "NVML_CLOCK_SM": 1,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMaxClockInfo": lambda handle, kind: 1500,
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda handle: 70_000,
    }
    return SimpleNamespace(**answers | changes)


def fails(*_: object) -> None:
    raise NVMLError


def test_the_entry_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    facts = SimpleNamespace(
        name="Test GPU", major=7, minor=5, multi_processor_count=40, total_memory=2**34,
        L2_cache_size=2**22,
    )  # fmt: skip
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: facts)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(device_entry, "measure_flops_per_s", lambda device, kind: 1e13)
    monkeypatch.setattr(device_entry, "measure_bandwidth_bytes_per_s", lambda device: 3e11)
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    entry = device_entry._cuda_entry(torch.device("cuda"))
    assert entry["compute_capability"] == "7.5"
    assert {"peak_fp32_flops_per_s", "peak_fp16_flops_per_s"} <= entry.keys()
    assert "peak_bf16_flops_per_s" not in entry
    assert (entry["boost_clock_hz"], entry["tdp_w"]) == (1.5e9, 70.0)
    facts.major = 8
    assert "peak_bf16_flops_per_s" in device_entry._cuda_entry(torch.device("cuda", 1))


@pytest.mark.parametrize(
    ("library", "found"),
    [
        (None, {}),
        (nvml(nvmlInit=fails), {}),
        (nvml(nvmlDeviceGetHandleByIndex=fails), {}),
        (nvml(nvmlDeviceGetMaxClockInfo=fails), {"tdp_w": 70.0}),
    ],
    ids=["no library", "no driver", "no device", "no clock"],
)
def test_a_driver_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, library: Any, found: dict[str, float]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert device_entry._nvml(0) == found
