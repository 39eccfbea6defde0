"""Measures the points of a sweep one after another; a killed run goes on where it stopped."""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prenet_gnn.data.record_file import append_record, read_records
from prenet_gnn.data.records import MeasuredRecord, point_key
from prenet_gnn.errors import ConfigError, PreNetError
from prenet_gnn.measuring.devices import resolve_device
from prenet_gnn.measuring.errors import DeviceLostError
from prenet_gnn.measuring.point import Effort, Point
from prenet_gnn.measuring.runner import base_record, measure_model
from prenet_gnn.measuring.sweeps import Sweep, load_sweep

if TYPE_CHECKING:
    import torch

# A point that ended the process this often is given up: the second one had all memory to itself
MAX_ATTEMPTS = 2
# After such an error every further call of a process to its GPU fails too
LOST = "CUDA error"
Measure = Callable[[Point, "torch.device", Effort], MeasuredRecord]


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """How a sweep is run.

    Attributes:
        minutes: Time limit; a point that runs when it ends is finished.
        device: Where to run; None takes an accelerator if there is one.
        threads: CPU threads; None takes the sweep's setting.
        progress: Show a progress bar on standard error.
    """

    minutes: float | None = None
    device: str | None = None
    threads: int | None = None
    progress: bool = True


DEFAULTS = SweepSettings()


@dataclass(slots=True)
class SweepSummary:
    """What a run of a sweep did.

    Attributes:
        name: The sweep.
        total: Points of the whole sweep.
        measured: Points measured now.
        known: Points that the file held before.
        oom: Points among `measured` that did not fit.
        failed: Points among `measured` that stopped with an error.
        skipped: Points left out because a smaller batch did not fit or took too long.
        remaining: Points for a later run, after the time was up.
        seconds: Time this run took.
        notes: What was dropped or given up.
    """

    name: str
    total: int
    measured: int = 0
    known: int = 0
    oom: int = 0
    failed: int = 0
    skipped: int = 0
    remaining: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)


def attempt_path(out: Path) -> Path:
    """The file that says which point runs."""
    return out.with_name(out.name + ".running")


class _Attempt:
    """A small file beside the records that says which point runs, and for which time."""

    def __init__(self, out: Path) -> None:
        self._path = attempt_path(out)
        self._last: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            self._last = json.loads(self._path.read_text())

    def start(self, key: str) -> int:
        """Notes the point before it runs; returns how often it was started without an end."""
        before = self._last.get("attempts", 0) if self._last.get("key") == key else 0
        self._last = {"key": key, "attempts": before + 1}
        partial = self._path.with_name(self._path.name + ".new")
        partial.write_text(json.dumps(self._last))
        os.replace(partial, self._path)
        return int(before)

    def done(self) -> None:
        """The run has ended by itself."""
        self._path.unlink(missing_ok=True)


@dataclass(slots=True)
class _Run:
    """State of one run."""

    sweep: Sweep
    out: Path
    device: torch.device
    threads: int
    measure: Measure
    summary: SweepSummary
    done: set[str] = field(default_factory=set)
    closed: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def key(self, point: Point) -> str:
        return point_key(point.identity(self.device.type, self.threads))

    def remember(self, point: Point, record: MeasuredRecord) -> None:
        """Closes a series above a batch size that did not fit or took too long."""
        slow = record.seconds is not None and record.seconds > self.sweep.max_iteration_s
        if record.oom or record.status == "crash" or slow:
            limit = self.closed.get(point.series, point.batch_size)
            self.closed[point.series] = min(limit, point.batch_size)

    def is_closed(self, point: Point) -> bool:
        return point.batch_size > self.closed.get(point.series, math.inf)

    def run(self, point: Point, attempts: int) -> MeasuredRecord:
        """Measures a point; whatever stops it becomes a record too."""
        if attempts >= MAX_ATTEMPTS:
            return self._failed(point, "crash", f"ended the process {attempts} times")
        effort = Effort(
            sample_s=self.sweep.sample_s,
            min_samples=self.sweep.min_samples,
            warmup_s=self.sweep.warmup_s,
            threads=self.threads,
            memory=self.sweep.memory,
        )
        try:
            return self.measure(point, self.device, effort)
        except PreNetError as error:
            return self._failed(point, "error", str(error))
        except Exception as error:  # one odd model must not end a sweep of thousands
            return self._failed(point, "error", f"{type(error).__name__}: {error}")

    def _failed(self, point: Point, status: str, text: str) -> MeasuredRecord:
        base = base_record(point, self.device)
        text = " ".join(text.split())[:300]
        return dataclasses.replace(base, threads=self.threads, status=status, error=text)


@contextmanager
def _quick_collector() -> Iterator[None]:
    """Keeps what is loaded already out of the collector's sight; it runs after every point."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def run_sweep(
    name_or_path: str | Path,
    out: str | Path,
    settings: SweepSettings = DEFAULTS,
    *,
    measure: Measure = measure_model,
    now: Callable[[], float] = time.monotonic,
) -> SweepSummary:
    """Measures what a records file does not hold yet, until all is done or the time is up.

    Args:
        name_or_path: Name of a sweep in `experiments/sweeps`, or a TOML file.
        out: Records file (`.jsonl`); every point adds one line as soon as it is done.
        settings: For how long, where, and whether a bar shows it.
        measure: What measures a point; tests replace it.
        now: Clock of the time limit.

    Raises:
        ConfigError: The sweep or the time limit is wrong.
        DeviceLostError: The device answers no more; `supervised_sweep` goes on in a new process.
    """
    import torch

    minutes = settings.minutes
    if minutes is not None and minutes <= 0:
        raise ConfigError(f"minutes must be above 0, not {minutes}.")
    sweep = load_sweep(name_or_path)
    out = Path(out)
    run = _Run(
        sweep,
        out,
        resolve_device(settings.device),
        settings.threads or sweep.threads or torch.get_num_threads(),
        measure,
        SweepSummary(sweep.name, len(sweep.points)),
    )
    _resume(run)
    start = now()
    limit = math.inf if minutes is None else start + 60 * minutes
    before = torch.get_num_threads()
    torch.set_num_threads(run.threads)
    try:
        with _quick_collector():
            _measure_all(run, limit, now, settings.progress)
    finally:
        torch.set_num_threads(before)
    run.summary.seconds = now() - start
    return run.summary


def _resume(run: _Run) -> None:
    if not run.out.exists():
        return
    records = {record.key: record for record in read_records(run.out, run.summary.notes)}
    for point in run.sweep.points:
        record = records.get(run.key(point))
        if record is not None:
            run.done.add(record.key)
            run.remember(point, record)
    run.summary.known = len(run.done)


def _measure_all(run: _Run, limit: float, now: Callable[[], float], progress: bool) -> None:
    todo = [point for point in run.sweep.points if run.key(point) not in run.done]
    attempt = _Attempt(run.out)
    run.out.parent.mkdir(parents=True, exist_ok=True)
    for number, point in enumerate(_with_bar(todo, run.sweep.name, progress)):
        if now() >= limit:
            run.summary.remaining = sum(not run.is_closed(p) for p in todo[number:])
            break
        if run.is_closed(point):
            run.summary.skipped += 1
            continue
        record = run.run(point, attempt.start(run.key(point)))
        append_record(run.out, record)
        run.remember(point, record)
        run.summary.measured += 1
        run.summary.oom += record.oom
        run.summary.failed += record.status in ("error", "crash")
        if record.status == "error" and LOST in record.error:
            raise DeviceLostError(f"{run.device} answers no more: {record.error}")
    attempt.done()


def _with_bar(points: list[Point], name: str, progress: bool) -> Iterator[Point]:
    """Yields the points under a bar with the remaining time."""
    if not progress:
        yield from points
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(points, description=name, console=Console(stderr=True))
