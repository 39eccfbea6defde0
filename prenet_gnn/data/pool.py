"""Runs the tracing of many models in worker processes that may die."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from prenet_gnn.data.keys import GraphKey, error_path, graph_folder, graph_path
from prenet_gnn.data.tracer import start_worker, trace_keys, write_error
from prenet_gnn.errors import DataError

# Models of one chunk share their imports; small chunks keep the workers evenly busy.
CHUNK = 8
# Fresh workers now and then keep the memory of thousands of exports bounded.
CHUNKS_PER_WORKER = 40
# A key that was being traced this often when a worker died is taken for the cause.
DEATHS = 3


class Job:
    """One build: hands chunks to workers until they are done or the time is up."""

    def __init__(self, root: Path, data_dir: Path | None, deadline: float | None) -> None:
        """Remembers where graphs go and when to stop (by the monotonic clock)."""
        self.root, self.data_dir, self.deadline = root, data_dir, deadline
        self.deaths: Counter[GraphKey] = Counter()

    @property
    def is_late(self) -> bool:
        """Whether the time is up."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def run_here(self, chunks: Sequence[list[GraphKey]], advance: Callable[[int], None]) -> None:
        """Traces in this process."""
        for chunk in chunks:
            if self.is_late:
                return
            trace_keys(chunk, self.root, self.data_dir)
            advance(len(chunk))

    def run_pool(
        self, chunks: list[list[GraphKey]], workers: int, advance: Callable[[int], None]
    ) -> None:
        """Restarts the pool when a worker dies (a model too large for the memory, say)."""
        while chunks and not self.is_late:
            try:
                self._one_pool(chunks, workers, advance)
                return
            except BrokenProcessPool as error:
                keys = [key for chunk in chunks for key in chunk]
                rest = [key for key in keys if not is_done(key, self.root)]
                if not self._blame() and len(rest) == len(keys):
                    raise DataError(f"the tracing processes do not start: {error}.") from error
                chunks = [[key] for key in rest if not is_done(key, self.root)]

    def _one_pool(
        self, chunks: list[list[GraphKey]], workers: int, advance: Callable[[int], None]
    ) -> None:
        pool = ProcessPoolExecutor(
            workers,
            mp_context=get_context("spawn"),
            initializer=start_worker,
            initargs=(os.getpid(),),
            max_tasks_per_child=CHUNKS_PER_WORKER,
        )
        waiting = list(reversed(chunks))
        running: dict[Future[None], int] = {}
        try:
            while (waiting and not self.is_late) or running:
                while waiting and len(running) < workers + 1 and not self.is_late:
                    chunk = waiting.pop()
                    future = pool.submit(trace_keys, chunk, self.root, self.data_dir)
                    running[future] = len(chunk)
                done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                    advance(running.pop(future))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _blame(self) -> int:
        """Counts what was traced when a worker died; often enough, it is recorded as failed."""
        folder = graph_folder(self.root)
        suspects = 0
        for marker in folder.glob("*.running"):
            if is_in_use(marker):
                continue
            key = GraphKey(**json.loads(marker.read_text(encoding="utf-8")))
            marker.unlink(missing_ok=True)
            self.deaths[key] += 1
            suspects += 1
            if self.deaths[key] >= DEATHS:
                write_error(key, self.root, "the tracing process died, perhaps for lack of memory")
        return suspects


def is_done(key: GraphKey, root: Path) -> bool:
    """Whether the graph, or the reason why there is none, is stored."""
    return graph_path(key, root).exists() or error_path(key, root).exists()


def chunks_of(keys: list[GraphKey]) -> list[list[GraphKey]]:
    """Chunks of keys in order; a model's two attention flavours stay in one chunk."""
    chunks: list[list[GraphKey]] = []
    for key in sorted(keys, key=lambda k: (k.library, k.model, k.image_size, k.mode, k.attention)):
        same = chunks and (chunks[-1][-1].library, chunks[-1][-1].model) == (key.library, key.model)
        if chunks and (len(chunks[-1]) < CHUNK or same):
            chunks[-1].append(key)
        else:
            chunks.append([key])
    return chunks


def is_in_use(path: Path) -> bool:
    """Whether the process whose number an unfinished file carries still runs."""
    pid = path.name.rsplit(".pid", 1)[-1].split(".")[0]
    if not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # A killed process that nobody has collected yet still has its number.
    with contextlib.suppress(OSError, IndexError):
        return Path("/proc", pid, "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return True
