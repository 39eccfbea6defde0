"""Works on many tasks in processes that may die, without losing the other tasks."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Generic, TypeVar

from prenet_gnn.errors import PreNetError

# Tasks waiting at the workers, so that none idles while the main process uses a result.
QUEUED = 2
# Fresh workers now and then keep the memory of thousands of exports bounded.
TASKS_PER_WORKER = 40
PARENT_CHECK_S = 1.0

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T, R]):
    """What became of a task.

    Attributes:
        task: The task.
        result: What the work gave; None if its process died.
        died: Whether the process died, beside others and then once more with this task alone.
    """

    task: T
    result: R | None = None
    died: bool = False


def run_all(
    work: Callable[[T], R], tasks: Iterable[T], workers: int, *, deadline: float | None = None
) -> Iterator[Outcome[T, R]]:
    """Works on all tasks and gives each outcome as soon as it is there.

    When a process dies (of a model too large for the memory, say), the tasks that were in work are
    tried again one by one, each in a process of its own, so that only the culprit is lost.

    Args:
        work: A function of a module, which another process can import.
        tasks: What it takes.
        workers: Processes; 0 works in this one.
        deadline: By the monotonic clock; what has not begun then is left out.

    Raises:
        PreNetError: The processes do not start.
    """
    waiting = deque(tasks)
    if not workers:
        while waiting and not _is_late(deadline):
            task = waiting.popleft()
            yield Outcome(task, work(task))
        return
    while waiting and not _is_late(deadline):
        suspects = yield from _until_a_death(work, waiting, workers, deadline)
        for task in suspects:
            if (yield from _until_a_death(work, deque([task]), 1, deadline)):
                yield Outcome(task, died=True)


def _until_a_death(
    work: Callable[[T], R], waiting: deque[T], workers: int, deadline: float | None
) -> Generator[Outcome[T, R], None, list[T]]:
    """Takes from `waiting` until that is empty or a process dies; gives what was in work then."""
    flying: dict[Future[R], T] = {}
    with _pool(min(workers, len(waiting))) as pool:
        started = pool.submit(int)
        try:
            while flying or (waiting and not _is_late(deadline)):
                while waiting and len(flying) < workers + QUEUED and not _is_late(deadline):
                    future = pool.submit(work, waiting[0])
                    flying[future] = waiting.popleft()
                for future in wait(flying, return_when=FIRST_COMPLETED).done:
                    result = future.result()
                    yield Outcome(flying.pop(future), result)
        except BrokenProcessPool as error:
            if started.exception() is not None:
                raise PreNetError(f"the worker processes do not start: {error}") from error
    return list(flying.values())


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    # A forked copy of a process that has run torch may hang, so start afresh.
    pool = ProcessPoolExecutor(
        workers,
        mp_context=get_context("spawn"),
        initializer=_start_worker,
        initargs=(os.getpid(),),
        max_tasks_per_child=TASKS_PER_WORKER,
    )
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker(parent: int) -> None:
    """Prepares a process: one thread for arithmetic, and an end with the parent or at Ctrl-C.

    A worker whose parent was killed would wait for work for ever.
    """
    import torch

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    torch.set_num_threads(1)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(1)


def _is_late(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline
