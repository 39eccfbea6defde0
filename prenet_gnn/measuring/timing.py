"""Times repeated iterations: warm-up until stable, steady-state samples, spread and drift."""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

MAX_SAMPLES = 200
# Two successive windows of this many iterations must agree before timing starts.
WARMUP_WINDOW = 3
WARMUP_TOLERANCE = 0.05
MIN_WARMUP = 3
MAX_WARMUP = 50
# Drift counts from the first to the last third of the samples.
DRIFT_TOLERANCE = 0.05
# Median absolute deviation of normal noise, in standard deviations.
MAD_TO_STD = 1.4826


class Clock(Protocol):
    """Marks points in the order in which a device works."""

    asynchronous: bool

    def mark(self) -> Any:
        """A point after all work issued so far."""

    def synchronize(self) -> None:
        """Waits until the device is idle."""

    def between(self, start: Any, end: Any) -> float:
        """Seconds from one mark to another; call after `synchronize`."""

    def now(self) -> float:
        """The host's time in seconds."""

    def busy_s(self) -> float:
        """Processor time that this process has used, over all its threads."""


class HostClock:
    """Work is done when the call returns, as on a CPU."""

    asynchronous = False

    def mark(self) -> float:
        """The host's time."""
        return time.perf_counter()

    def synchronize(self) -> None:
        """Nothing runs behind the host's back."""

    def between(self, start: float, end: float) -> float:
        """Difference of two host times."""
        return end - start

    def now(self) -> float:
        """The host's time in seconds."""
        return time.perf_counter()

    def busy_s(self) -> float:
        """Processor time that this process has used, over all its threads."""
        return time.process_time()


class CudaClock(HostClock):
    """CUDA events, since kernels run after the call has returned."""

    asynchronous = True

    def __init__(self, device: Any) -> None:
        """Remembers the device; events belong to its current stream."""
        import torch

        self._torch, self._device = torch, device

    def mark(self) -> Any:
        """An event recorded behind the work issued so far."""
        event = self._torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(self._torch.cuda.current_stream(self._device))
        return event

    def synchronize(self) -> None:
        """Waits for all streams of the device."""
        self._torch.cuda.synchronize(self._device)

    def between(self, start: Any, end: Any) -> float:
        """Events count in milliseconds."""
        return float(start.elapsed_time(end)) * 1e-3


class MpsClock(HostClock):
    """Waits at each mark; Apple's events are too coarse to chain."""

    def mark(self) -> float:
        """The host's time once the device is idle."""
        self.synchronize()
        return time.perf_counter()

    def synchronize(self) -> None:
        """Waits for the device."""
        import torch

        torch.mps.synchronize()


def clock_for(device: Any) -> HostClock:
    """The clock that fits a `torch.device`."""
    if device.type == "cuda":
        return CudaClock(device)
    return MpsClock() if device.type == "mps" else HostClock()


@dataclass(frozen=True, slots=True)
class Warmup:
    """How the warm-up went.

    Attributes:
        iterations: Number of iterations run.
        first_s: Time of the first one.
        typical_s: Median of the last ones; says how many samples a time budget allows.
        stable: The last windows agreed.
    """

    iterations: int
    first_s: float
    typical_s: float
    stable: bool


@dataclass(frozen=True, slots=True)
class Spread:
    """Summary of samples in seconds."""

    median_s: float
    mean_s: float
    std_s: float
    p10_s: float
    p90_s: float
    drift: bool
    outliers: int


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Switches garbage collection off, so that it does not fall into a sample."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _stable(times: list[float]) -> bool:
    if len(times) < 2 * WARMUP_WINDOW:
        return False
    last = statistics.fmean(times[-WARMUP_WINDOW:])
    before = statistics.fmean(times[-2 * WARMUP_WINDOW : -WARMUP_WINDOW])
    return abs(last - before) <= WARMUP_TOLERANCE * before


def warm_up(step: Callable[[], object], clock: Clock, limit_s: float = 10.0) -> Warmup:
    """Runs until successive windows agree; the first iteration does not count for the limit.

    Kernel search, compilation, allocator growth and the optimizer's first state all happen in
    the first iterations, so at least three are run.
    """
    times: list[float] = []
    while len(times) < MAX_WARMUP:
        clock.synchronize()
        start = clock.now()
        step()
        clock.synchronize()
        times.append(clock.now() - start)
        enough = len(times) >= MIN_WARMUP and sum(times[1:]) >= limit_s
        if enough or _stable(times):
            break
    typical = statistics.median(times[-WARMUP_WINDOW:])
    return Warmup(len(times), times[0], typical, _stable(times))


def sample_count(
    typical_s: float, budget_s: float, iterations: int | None, minimum: int = 5
) -> int:
    """As many samples as asked for, or as the budget allows, between `minimum` and 200."""
    if iterations is not None:
        return min(iterations, MAX_SAMPLES)
    return max(minimum, min(MAX_SAMPLES, int(budget_s / max(typical_s, 1e-9))))


def sample(step: Callable[[], object], clock: Clock, count: int) -> tuple[list[float], list[float]]:
    """Times `count` iterations back to back, as a training loop runs them.

    The host may run ahead of the device, so there is no wait in between; one untimed iteration
    leads in, since the first after a wait shows the host's latency.

    Returns:
        Seconds of each iteration, and the processor seconds of each where the host does the work
        (else nothing).
    """
    clock.synchronize()
    step()
    marks, busy = [clock.mark()], [clock.busy_s()]
    for _ in range(count):
        step()
        marks.append(clock.mark())
        busy.append(clock.busy_s())
    clock.synchronize()
    times = [clock.between(a, b) for a, b in itertools.pairwise(marks)]
    if clock.asynchronous:
        return times, []
    return times, [b - a for a, b in itertools.pairwise(busy)]


def sample_synced(
    step: Callable[[], object], clock: Clock, count: int
) -> tuple[list[float], list[float]]:
    """Iterations that start and end with an idle device: whole time and time to issue."""
    whole, issue = [], []
    for _ in range(count):
        clock.synchronize()
        start = clock.now()
        step()
        issue.append(clock.now() - start)
        clock.synchronize()
        whole.append(clock.now() - start)
    return whole, issue


def sample_phases(
    step: Callable[[Callable[[str], None]], object], clock: Clock, count: int
) -> dict[str, float]:
    """Median seconds of each phase; `step` calls its argument at the end of a phase."""
    phases: dict[str, list[float]] = {}
    for _ in range(count):
        clock.synchronize()
        start = clock.mark()
        marks: list[tuple[str, Any]] = []
        step(lambda name, marks=marks: marks.append((name, clock.mark())))  # type: ignore[misc]
        clock.synchronize()
        for name, end in marks:
            phases.setdefault(name, []).append(clock.between(start, end))
            start = end
    return {name: statistics.median(times) for name, times in phases.items()}


def quantile(samples: list[float], share: float) -> float:
    """Linear interpolation between the two nearest samples."""
    ordered = sorted(samples)
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def _robust_std(samples: list[float]) -> float:
    median = statistics.median(samples)
    return MAD_TO_STD * statistics.median(abs(sample - median) for sample in samples)


def summarize(samples: list[float]) -> Spread:
    """Median, spread, drift and outliers of at least one sample."""
    median = statistics.median(samples)
    robust_std = _robust_std(samples)
    third = len(samples) // 3
    drift = False
    if third >= 3:
        first, last = samples[:third], samples[-third:]
        change = abs(statistics.median(last) - statistics.median(first))
        noise = max(_robust_std(first), _robust_std(last))
        drift = change > max(DRIFT_TOLERANCE * median, 2 * noise)
    limit = median + max(5 * robust_std, 0.02 * median)
    return Spread(
        median_s=median,
        mean_s=statistics.fmean(samples),
        std_s=statistics.stdev(samples) if len(samples) > 1 else 0.0,
        p10_s=quantile(samples, 0.1),
        p90_s=quantile(samples, 0.9),
        drift=drift,
        outliers=sum(s > limit for s in samples),
    )
