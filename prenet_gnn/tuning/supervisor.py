"""Keeps the workers of a study running: one that dies is replaced, its trial is run again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prenet_gnn.errors import PreNetError
from prenet_gnn.tuning.trials import finished, reclaim

# Deaths by a signal (out of memory, say) in one call before the study is given up.
MOST_DEATHS = 5
POLL_S = 0.2

Spawn = Callable[[int], "subprocess.Popen[bytes]"]
Progress = Callable[[Any], None]


def spawn_worker(folder: Path, number: int) -> subprocess.Popen[bytes]:
    """Starts a worker whose output goes into a log in the study's folder."""
    with (folder / f"worker-{number}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "prenet_gnn.tuning.worker", str(folder), str(number)],
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def last_line(path: Path) -> str:
    """What a log ends with."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:300] if lines else ""


def supervise(study: Any, spawn: Spawn, workers: int, progress: Progress | None = None) -> None:
    """Runs workers until all of them say that the study is done.

    Raises:
        PreNetError: A worker stopped with an error, or workers die again and again.
    """
    running = {number: spawn(number) for number in range(workers)}
    deaths = 0
    try:
        while running:
            time.sleep(POLL_S)
            for number, process in list(running.items()):
                status = process.poll()
                if status is None:
                    continue
                del running[number]
                if status == 0:
                    continue
                reclaim(study)
                deaths += 1
                if status > 0 or deaths > MOST_DEATHS:
                    raise PreNetError(f"worker {number} of the study ended with status {status}")
                running[number] = spawn(number)
            if progress is not None:
                progress(study)
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()


def show_progress(count: int) -> tuple[Any, Progress]:
    """A progress bar with the best value so far."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )
    task = bar.add_task("trials", total=count)

    def update(study: Any) -> None:
        done = finished(study)
        values = [t.values[0] for t in done if t.values and t.state.name == "COMPLETE"]
        best = f"best {min(values):.1%}" if values else "trials"
        bar.update(task, completed=len(done), description=best)

    return bar, update
