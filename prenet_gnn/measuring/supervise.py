"""Runs a sweep in a process of its own, and goes on with a new one when a point kills it.

A crash of a library, the system's killer for memory, or a GPU that stops answering ends a process;
the records file says where to go on.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING

from prenet_gnn.data.record_file import read_records
from prenet_gnn.data.records import MeasuredRecord
from prenet_gnn.errors import PreNetError
from prenet_gnn.measuring.errors import DeviceLostError, MeasureError
from prenet_gnn.measuring.sweep_run import SweepSettings, SweepSummary, attempt_path, run_sweep

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def supervised_sweep(
    name_or_path: str | Path,
    out: str | Path,
    minutes: float | None = None,
    device: str | None = None,
    *,
    threads: int | None = None,
    progress: bool = True,
) -> SweepSummary:
    """As `run_sweep`, but a point that ends its process does not end the sweep.

    Raises:
        MeasureError: The process ended before it could start a point.
        PreNetError: What `run_sweep` raises.
    """
    out, start, restarts = Path(out), time.monotonic(), 0
    before = _records(out)
    while True:
        left = None if minutes is None else minutes - (time.monotonic() - start) / 60
        if left is not None and restarts and left <= 0:
            raise MeasureError(
                f"the time was up after {restarts} restarts; run the same command to go on."
            )
        settings = SweepSettings(left, device, threads, progress)
        answer, status = _one_process(name_or_path, out, settings)
        if isinstance(answer, SweepSummary):
            return _whole(answer, _records(out)[len(before) :], restarts, start)
        if isinstance(answer, PreNetError) and not isinstance(answer, DeviceLostError):
            raise answer
        if answer is None and (status >= 0 or not attempt_path(out).exists()):
            raise MeasureError(f"the process of the sweep ended with status {status}.")
        restarts += 1


def _records(out: Path) -> tuple[MeasuredRecord, ...]:
    return read_records(out) if out.exists() else ()


def _one_process(
    name_or_path: str | Path, out: Path, settings: SweepSettings
) -> tuple[SweepSummary | PreNetError | None, int]:
    """What a process answers, and its exit status; below zero a signal ended it."""
    # A forked copy of a process that has run torch may hang, so start afresh.
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(sender, name_or_path, out, settings))
    child.start()
    sender.close()
    try:
        answer: SweepSummary | PreNetError | None = None
        with suppress(EOFError):
            answer = receiver.recv()
        child.join()
    finally:
        child.kill()
        child.join()
    return answer, child.exitcode or 0


def _child(
    sender: Connection, name_or_path: str | Path, out: Path, settings: SweepSettings
) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        sender.send(run_sweep(name_or_path, out, settings))
    except PreNetError as error:
        sender.send(type(error)(*error.args))
    except KeyboardInterrupt:  # the parent was interrupted too, and says so
        os._exit(1)


def _end_with_parent() -> None:
    """A killed parent must not leave a process that goes on measuring."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _whole(
    last: SweepSummary, new: tuple[MeasuredRecord, ...], restarts: int, start: float
) -> SweepSummary:
    """Counts what all processes of a sweep did, not only the last one."""
    last.known -= len(new) - last.measured
    last.measured = len(new)
    last.oom = sum(record.oom for record in new)
    last.failed = sum(record.status in ("error", "crash") for record in new)
    last.seconds = time.monotonic() - start
    if restarts:
        last.notes.append(f"started again {restarts} times after a point ended the process")
    return last
