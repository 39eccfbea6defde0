"""Pools whose workers die, without starting any: who is blamed, and who is tried again."""

from __future__ import annotations

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
from prenet_gnn.common import files, processes
from prenet_gnn.data import tracer
from prenet_gnn.data.keys import GraphKey, error_path, graph_folder, graph_path
from prenet_gnn.errors import PreNetError
from prenet_gnn.measuring import device_entry
from prenet_gnn.predictor import bulk
from prenet_gnn.predictor.jobs import TraceRequest


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


class NeverStarts(InProcess):
    """An executor whose processes end before they take any work."""

    def submit(self, work: Callable[..., Any], *words: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(BrokenProcessPool("no worker started"))
        return future


def work_of(name: str) -> str:
    """Work that ends its process at one task."""
    worked.append(name)
    if name.startswith("deadly"):
        raise BrokenProcessPool("a worker died")
    return name.upper()


worked: list[str] = []


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ProcessPoolExecutor", InProcess)
    worked.clear()


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_task_that_kills_its_process_is_lost_alone(in_process: None, workers: int) -> None:
    names = ["a", "deadly", "b", "c", "d", "deadly too", "e"]
    outcomes = list(processes.run_all(work_of, names, workers))
    assert sorted(outcome.task for outcome in outcomes) == sorted(names)
    for outcome in outcomes:
        died = outcome.task.startswith("deadly")
        assert outcome.died == died
        assert outcome.result == (None if died else outcome.task.upper())
    # in company, and once more alone
    assert worked.count("deadly") in (2, 3)


def test_outcomes_come_one_by_one(in_process: None) -> None:
    outcomes = processes.run_all(work_of, iter("abcdefgh"), 1)
    assert next(outcomes).result in {"A", "B", "C"}
    assert len(worked) == 1 + processes.QUEUED
    outcomes.close()
    assert len(worked) == 1 + processes.QUEUED


def test_without_workers_this_process_works() -> None:
    assert [o.result for o in processes.run_all(str.upper, "ab", 0)] == ["A", "B"]


def test_processes_that_never_start_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ProcessPoolExecutor", NeverStarts)
    with pytest.raises(PreNetError, match="do not start"):
        list(processes.run_all(work_of, ["a", "b"], 1))


@pytest.mark.parametrize("workers", [0, 1])
def test_time_that_is_up_starts_nothing(workers: int) -> None:
    assert list(processes.run_all(pytest.fail, ["a"], workers, deadline=0.0)) == []


def test_a_model_that_kills_its_process_is_recorded(
    in_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trace_keys(keys: list[GraphKey], root: Path, data_dir: None) -> None:
        for key in keys:
            if key == DEADLY:
                raise BrokenProcessPool("a worker died")
            graph_path(key, root).write_bytes(b"graph")

    monkeypatch.setattr(tracer, "trace_keys", trace_keys)
    graph_folder(tmp_path).mkdir(parents=True)
    done: list[int] = []
    tracer.trace_missing(
        [*GOOD, DEADLY], tmp_path, None, workers=2, deadline=None, advance=done.append
    )
    assert "died" in error_path(DEADLY, tmp_path).read_text()
    assert all(graph_path(key, tmp_path).exists() for key in GOOD)
    assert not any(error_path(key, tmp_path).exists() for key in GOOD)
    assert sum(done) == 3


def test_drafts_of_dead_processes_are_removed(tmp_path: Path) -> None:
    with files.replacing(tmp_path / "new.json.gz") as mine:
        mine.write_bytes(b"mine")
        for name in (".pid999999999.tmp.x.json.gz", ".pidx.tmp.y", "z.json.gz"):
            (tmp_path / name).write_bytes(b"")
        files.remove_abandoned(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == [mine.name, "z.json.gz"]
    assert (tmp_path / "new.json.gz").read_bytes() == b"mine"


def test_a_row_whose_model_kills_its_process_fails_alone(
    in_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [TraceRequest(name) for name in ("a", "deadly", "b", "c")]

    def trace_sizes(task: tuple[TraceRequest, tuple[int, ...]]) -> dict[int, str]:
        return dict.fromkeys(task[1], work_of(task[0].model))

    monkeypatch.setattr(bulk, "trace_sizes", trace_sizes)
    found = dict(bulk.trace_all({request: (1, 2) for request in requests}, 2))
    assert set(found) == set(requests)
    assert all("ended abruptly" in text for text in found[requests[1]].values())
    for request in (requests[0], *requests[2:]):
        assert found[request] == {1: request.model.upper(), 2: request.model.upper()}


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
