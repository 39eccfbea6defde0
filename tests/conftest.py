"""Fixtures that several test modules share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the measured data; tests that need it are skipped where it is not at hand."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("PRENET_DATA") or beside)
    if not (folder / "measurements.csv.gz").is_file():
        pytest.skip("measured data not found: set PRENET_DATA")
    return folder


# A worker of a study whose trials tell a log when they end; after every second one they wait until
# a worker has been killed, three times, so that no kill depends on how fast the machine is.
TOY_WORKER = """
import sys, time
from pathlib import Path
from prenet_gnn.tuning import trials
from prenet_gnn.tuning.storage import open_study

address, log, number, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
trials.UNSIGNED_S = 0.5

def lines(path):
    return len(Path(path).read_text().splitlines()) if Path(path).exists() else 0

def objective(trial):
    x = trial.suggest_float("x", -1.0, 1.0)
    time.sleep(0.1)
    while (kills := lines(log + ".kills")) < 3 and lines(log) >= 2 * (kills + 1):
        time.sleep(0.05)
    with open(log, "a") as file:
        file.write(f"{trial.number}\\n")
    return x * x

trials.run_trials(open_study(address), objective, count, seed=3, worker=number)
"""


@pytest.fixture
def study_with_killed_workers(tmp_path):
    """Runs a study with two workers, kills one of them three times, and gives study and log."""
    from prenet_gnn.tuning.storage import open_study
    from prenet_gnn.tuning.supervisor import supervise

    def run(address: str, count: int):
        script, log = tmp_path / "toy.py", tmp_path / "log"
        script.write_text(TOY_WORKER, encoding="utf-8")
        running, killed = {}, []

        def spawn(number):
            command = [sys.executable, script, address, log, str(number), str(count)]
            running[number] = subprocess.Popen([str(word) for word in command])
            return running[number]

        def kill_some(study):
            done = len(log.read_text().splitlines()) if log.exists() else 0
            if len(killed) < 3 and done >= 2 * (len(killed) + 1):
                process = running[len(killed) % 2]
                if process.poll() is None:
                    process.kill()
                    killed.append(process.pid)
                    log.with_name("log.kills").write_text("killed\n" * len(killed))

        study = open_study(address)
        supervise(study, spawn, 2, kill_some)
        assert len(killed) == 3
        return study, [int(line) for line in log.read_text().split()]

    return run


@pytest.fixture
def check_study():
    """What has to be true of a study after its workers were killed."""

    def check(study, log, count):
        from prenet_gnn.tuning.trials import finished

        done = finished(study)
        assert len(done) == count
        values = [trial.params["x"] for trial in done]
        assert len(set(values)) == count, "the same settings finished twice"
        # every trial that the storage took is in the log, and none ran to its end a second time
        assert {trial.number for trial in done} <= set(log)
        assert len(log) == len(set(log))
        assert not [
            t for t in study.trials if not t.state.is_finished() and t.state.name != "WAITING"
        ]

    return check
