"""Runs trials of a study one by one so that no finished trial is lost or run twice.

Every running trial carries the name of its process. Whoever finds one whose process is gone marks
it as failed; the storage lets only one of them do so, and that one queues its settings again.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prenet_gnn.common.pids import start_ticks

WORKER, BEAT, RETRY_OF, RETRIES = "worker", "beat_s", "retry_of", "retries"
# Settings that ended this many processes are not tried again.
MAX_RETRIES = 2
# A trial of another machine that has said nothing for so long is taken for lost.
STALE_AFTER_S = 1800.0
# A trial without the name of its process: it was asked for a moment ago, or its process died then.
UNSIGNED_S = 60.0
STARTUP_TRIALS = 10

Objective = Callable[[Any], "float | tuple[float, ...]"]


def worker_name() -> str:
    """Names this process for good: host, number, and start time, since numbers come again."""
    return f"{socket.gethostname()}/{os.getpid()}/{start_ticks(os.getpid())}"


def is_alive(worker: str, beat_s: float, stale_after_s: float = STALE_AFTER_S) -> bool:
    """Whether the process behind a name still runs; of other machines only the beat tells."""
    host, pid, started = worker.rsplit("/", 2)
    if host == socket.gethostname() and pid.isdigit() and Path("/proc/self").exists():
        return started != "" and start_ticks(int(pid)) == started
    return time.time() - beat_s < stale_after_s


def reclaim(study: Any, stale_after_s: float = STALE_AFTER_S) -> int:
    """Fails trials whose process is gone and queues their settings again; gives their number."""
    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import TrialState

    found = 0
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        worker = trial.user_attrs.get(WORKER)
        beat = trial.user_attrs.get(BEAT, trial.datetime_start.timestamp())
        if worker is None:
            if time.time() - beat < UNSIGNED_S:
                continue
        elif is_alive(worker, beat, stale_after_s):
            continue
        try:
            study.tell(trial.number, state=TrialState.FAIL)
        except (ValueError, RuntimeError, UpdateFinishedTrialError):
            continue  # somebody else was faster
        found += 1
        retries = trial.user_attrs.get(RETRIES, 0)
        if trial.params and retries < MAX_RETRIES:
            marks = {RETRY_OF: trial.number, RETRIES: retries + 1}
            study.enqueue_trial(trial.params, user_attrs=marks)
    return found


def finished(study: Any) -> list[Any]:
    """Trials with a result: complete or pruned."""
    from optuna.trial import TrialState

    states = (TrialState.COMPLETE, TrialState.PRUNED)
    trials: list[Any] = study.get_trials(deepcopy=False, states=states)
    return trials


def make_sampler(seed: int, worker: int, existing: int) -> Any:
    """A sampler for the next trial.

    It is seeded by how many trials there are, so that a study that goes on does not draw its first
    settings again, and one that was stopped draws what it would have drawn.
    """
    from optuna.samplers import TPESampler

    mixed = (seed * 1_000_003 + existing * 64 + worker) % 2**32
    return TPESampler(
        n_startup_trials=STARTUP_TRIALS, constant_liar=True, multivariate=False, seed=mixed
    )


def run_trials(
    study: Any,
    objective: Objective,
    count: int,
    *,
    seed: int = 0,
    worker: int = 0,
    stale_after_s: float = STALE_AFTER_S,
) -> None:
    """Runs trials until the study has `count` finished ones, with other workers beside it.

    Args:
        study: A study of `open_study`.
        objective: Gives the value of a trial; may raise `optuna.TrialPruned`.
        count: Finished trials that the study shall have.
        seed: Seed of the study.
        worker: Number of this worker, so that no two draw the same settings.
        stale_after_s: See `STALE_AFTER_S`.
    """
    import optuna
    from optuna.trial import TrialState

    me = worker_name()
    while True:
        reclaim(study, stale_after_s)
        trials = study.get_trials(deepcopy=False)
        counted = [t for t in trials if t.state != TrialState.FAIL]
        if sum(t.state != TrialState.WAITING for t in counted) >= count:
            if all(t.state.is_finished() for t in counted) or len(finished(study)) >= count:
                return
            time.sleep(0.2)  # others are at the last trials; if one dies, its trial is ours
            continue
        study.sampler = make_sampler(seed, worker, len(trials))
        trial = study.ask()
        trial.set_user_attr(WORKER, me)
        trial.set_user_attr(BEAT, time.time())
        if _rank(study, trial.number) >= count:
            # two workers asked for the last trial at once; the later one steps back
            study.tell(trial, state=TrialState.FAIL)
            continue
        try:
            value = objective(trial)
        except optuna.TrialPruned:
            study.tell(trial, state=TrialState.PRUNED)
        except BaseException:
            study.tell(trial, state=TrialState.FAIL)
            raise
        else:
            study.tell(trial, value)


def _rank(study: Any, number: int) -> int:
    """How many trials that count come before this one."""
    from optuna.trial import TrialState

    others = study.get_trials(deepcopy=False)
    skipped = (TrialState.FAIL, TrialState.WAITING)
    return sum(t.number != number and t.state not in skipped and _before(t, number) for t in others)


def _before(trial: Any, number: int) -> bool:
    return bool(trial.state.is_finished() or trial.number < number)
