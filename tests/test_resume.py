"""The state that a fit keeps: kill -9, a full disk, other settings, damage and hostile files."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fits import fit_rows
from networks import config
from test_training import EMPTY, SMALL, made_up_rows

from prenet_gnn.errors import CheckpointError
from prenet_gnn.training.resume import DRAFT, STATE, keep
from prenet_gnn.training.train_config import TrainConfig

ROOT = Path(__file__).resolve().parents[1]
WIDER = config(hidden=24, layers=1, dropout=0.0, operator_dropout=0.0)
CONFIG = TrainConfig(epochs=4, rows_per_epoch=0, batch_size=6)
EVERYTHING = np.arange(12)


@pytest.fixture(scope="module")
def rows() -> Any:
    return made_up_rows()


@pytest.fixture
def stopped(rows: Any, tmp_path: Path) -> Path:
    """A folder of a run that was stopped after two epochs."""

    class Stop(Exception):
        pass

    def stop(epoch: int, figures: dict[str, float]) -> None:
        if epoch == 1:
            raise Stop

    with pytest.raises(Stop):
        fit_rows(rows, EVERYTHING, EMPTY, SMALL, CONFIG, folder=tmp_path, report=stop)
    return tmp_path


def weights(fitted: Any) -> dict[str, torch.Tensor]:
    return dict(fitted.model.state_dict())


def test_a_stopped_run_ends_with_the_weights_of_one_that_was_not_stopped(
    rows: Any, stopped: Path
) -> None:
    whole = weights(fit_rows(rows, EVERYTHING, EMPTY, SMALL, CONFIG))
    resumed = weights(fit_rows(rows, EVERYTHING, EMPTY, SMALL, CONFIG, folder=stopped))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


CHILD = """
import sys, time
from pathlib import Path
from prenet_gnn.training import resume
from test_resume import CONFIG, EMPTY, EVERYTHING, SMALL, fit_rows, made_up_rows

folder = Path(sys.argv[1])


def report(epoch, figures):
    if epoch == 1:
        (folder / "next.ckpt").write_bytes((folder / "last.ckpt").read_bytes()[:500])
        (folder / "ready").touch()
        time.sleep(600)

fit_rows(made_up_rows(), EVERYTHING, EMPTY, SMALL, CONFIG, folder=folder, report=report)
"""


def test_kill_9_loses_no_finished_epoch(rows: Any, tmp_path: Path) -> None:
    """The process dies with a state half-written beside the whole one."""
    script, folder = tmp_path / "child.py", tmp_path / "run"
    script.write_text(CHILD)
    places = [str(Path(__file__).parent), str(ROOT)]
    child = subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
    )
    try:
        while child.poll() is None and not (folder / "ready").exists():
            time.sleep(0.1)
        assert child.poll() is None, "the child ended by itself"
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    epochs: list[int] = []
    resumed = fit_rows(
        rows, EVERYTHING, EMPTY, SMALL, CONFIG, folder=folder, report=lambda e, _: epochs.append(e)
    )
    assert epochs == [2, 3]
    assert [figures["epoch"] for figures in resumed.history] == [0, 1, 2, 3]
    assert [path.name for path in folder.glob("*.ckpt")] == [STATE]
    whole = weights(fit_rows(rows, EVERYTHING, EMPTY, SMALL, CONFIG))
    assert all(torch.equal(whole[name], value) for name, value in weights(resumed).items())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epochs": 9}, "another epochs"),
        ({"seed": 7}, "another seed"),
        ({"learning_rate": 0.1, "batch_size": 3}, "another batch_size, learning_rate"),
    ],
)
def test_another_setting_does_not_go_on(
    rows: Any, stopped: Path, change: dict[str, Any], named: str
) -> None:
    before = (stopped / STATE).read_bytes()
    with pytest.raises(CheckpointError, match=named):
        fit_rows(rows, EVERYTHING, EMPTY, SMALL, replace(CONFIG, **change), folder=stopped)
    with pytest.raises(CheckpointError, match="another rows"):
        fit_rows(rows, EVERYTHING[:6], EMPTY, SMALL, CONFIG, folder=stopped)
    with pytest.raises(CheckpointError, match=r"another encoder\.hidden"):
        fit_rows(rows, EVERYTHING, EMPTY, WIDER, CONFIG, folder=stopped)
    assert (stopped / STATE).read_bytes() == before


def test_a_state_of_an_earlier_version_is_taken_where_it_fits(rows: Any, stopped: Path) -> None:
    kept = torch.load(stopped / STATE, weights_only=True)
    del kept["settings"]
    torch.save(kept, stopped / STATE)
    with pytest.raises(CheckpointError, match="another network"):
        fit_rows(rows, EVERYTHING, EMPTY, WIDER, CONFIG, folder=stopped)
    assert (
        fit_rows(rows, EVERYTHING, EMPTY, SMALL, CONFIG, folder=stopped).history[-1]["epoch"] == 3
    )


class Bomb:
    """Makes a file when it is unpickled the careless way."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-700]),
    "text": lambda path: path.write_text("epoch 3\n"),
    "zeros": lambda path: path.write_bytes(b"\0" * 5000),
    "a list": lambda path: torch.save([1, 2], path),
    "no epoch": lambda path: torch.save({"model": {}}, path),
    "epoch is text": lambda path: torch.save({"epoch": "x", "history": []}, path),
    "a bomb": lambda path: path.write_bytes(pickle.dumps(Bomb(path.with_name("exploded")))),
    "a packed bomb": lambda path: torch.save({"epoch": Bomb(path.with_name("exploded"))}, path),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_state_is_refused(rows: Any, stopped: Path, case: str) -> None:
    DAMAGE[case](stopped / STATE)
    with pytest.raises(CheckpointError, match="remove it") as caught:
        fit_rows(rows, EVERYTHING, EMPTY, SMALL, CONFIG, folder=stopped)
    assert "\n" not in str(caught.value)
    assert not (stopped / "exploded").exists()


def test_a_disk_that_is_full_keeps_the_state_before(tmp_path: Path) -> None:
    class Full:
        """A Fabric whose disk takes half of a file."""

        def save(self, path: Path, state: object) -> None:
            path.write_bytes(b"half")
            raise RuntimeError("[enforce fail] . PytorchStreamWriter failed writing file\n...")

    (tmp_path / STATE).write_bytes(b"whole")
    with pytest.raises(CheckpointError, match="cannot keep the run") as caught:
        keep(Full(), tmp_path, {}, {}, 3, [])
    assert "\n" not in str(caught.value)
    assert (tmp_path / STATE).read_bytes() == b"whole"
    assert not (tmp_path / DRAFT).exists()
