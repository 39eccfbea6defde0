"""A full disk or Ctrl-C leaves nothing half-written and says so in one line."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from prenet_gnn.cli import main
from prenet_gnn.common.files import write_whole
from prenet_gnn.data.keys import GraphKey
from prenet_gnn.data.record_file import write_gzip
from prenet_gnn.encoding.encode import encode
from prenet_gnn.encoding.template import build_template
from prenet_gnn.errors import PreNetError
from prenet_gnn.measuring import MeasuredRecord, append_record, read_records
from prenet_gnn.network.checkpoint import load_checkpoint, save_checkpoint
from prenet_gnn.predictor.calibration import Calibration
from prenet_gnn.training.store import EntryKey, Store
from tracing import BATCH_MARKER, OpGraph, TraceError, trace
from tracing.views.write import write_graph

ROOT = Path(__file__).resolve().parents[1]
SMALL_DISK = 64 * 1024


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB with 4 KiB left."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk is not permitted here")
    try:
        (folder / "filler").write_bytes(b"x" * (SMALL_DISK - 8192))
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def _graph(batch_size: int = 2) -> OpGraph:
    layers = [torch.nn.Linear(4, 4) for _ in range(100)]
    return trace(torch.nn.Sequential(*layers), (torch.empty(batch_size, 4),))


def _big_calibration() -> Calibration:
    names = {f"factor-{n}": 0.1 for n in range(60)}
    return Calibration("CPU", 3, names, tuple((0.01,) * 60 for _ in range(60)), 0.05)


def _encoded() -> Store:
    store = Store()
    template = build_template(_graph(BATCH_MARKER), "fp32")
    for batch_size in range(1, 200):
        key = EntryKey(GraphKey("torchvision", "net"), "fp32", batch_size)
        store.entries[key] = encode(template, batch_size, "fp32")
    return store


def _records() -> list[MeasuredRecord]:
    rng = random.Random(0)
    samples = [tuple(rng.random() for _ in range(200)) for _ in range(100)]
    return [MeasuredRecord("net:mlp", 2, seconds=0.1, samples_s=each) for each in samples]


WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "result": ("r.txt", lambda path: write_whole(path, "y" * SMALL_DISK)),
    "graph": ("g.json", lambda path: _graph().to_json(path)),
    "calibration": ("c.json", lambda path: _big_calibration().save(path)),
    "weights": ("weights", lambda path: save_checkpoint(load_checkpoint(), path)),
    **{
        f"graph as {end}": (f"g.{end}", lambda path: write_graph(_graph(), path))
        for end in ("csv", "graphml", "dot", "html")
    },
    "encoded graphs": ("e.npz", lambda path: _encoded().save(path)),
    "records": ("m.jsonl.gz", lambda path: write_gzip(path, _records())),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_keeps_what_was_there(full_disk: Path, name: str) -> None:
    file, write = WRITERS[name]
    path = full_disk / file
    old = path / "model.json" if name == "weights" else path
    old.parent.mkdir(exist_ok=True)
    old.write_text("old")
    before = sorted(p.name for p in full_disk.rglob("*"))
    with pytest.raises((PreNetError, TraceError, OSError)) as caught:
        write(path)
    assert len(str(caught.value).splitlines()) == 1
    assert old.read_text() == "old"
    assert sorted(p.name for p in full_disk.rglob("*")) == before


def test_a_full_disk_keeps_whole_records(full_disk: Path) -> None:
    path = full_disk / "m.jsonl"
    record = MeasuredRecord("net:mlp", 2, seconds=0.1, samples_s=tuple(0.1 + n for n in range(200)))
    with pytest.raises(PreNetError, match=r"disk is full|No space"):
        for _ in range(100):
            append_record(path, record)
    notes: list[str] = []
    assert len(read_records(path, notes)) >= 1
    assert notes == []


def test_a_full_disk_is_one_line(full_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (full_disk / "more").write_bytes(b"x" * 3000)
    words = ["hardware", "--json", "-o", str(full_disk / "h.json")]
    assert main(words) in (0, 1)
    (full_disk / "net.py").write_text(
        "import torch\ndef net(batch_size=2):\n"
        "    layers = [torch.nn.Linear(4, 4) for _ in range(100)]\n"
        "    return torch.nn.Sequential(*layers), (torch.empty(batch_size, 4),)\n"
    )
    capsys.readouterr()
    out = full_disk / "g.json"
    assert main(["trace", f"{full_disk}/net.py:net", "-o", str(out)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("prenet: ") and error.count("\n") == 1
    assert not out.exists()


SLOW = """
import time, torch

class Slow(torch.nn.Module):
    def forward(self, x):
        time.sleep(0.2)
        return x * 2

def net(batch_size=1):
    return Slow(), (torch.empty(batch_size, 4),)
"""


def test_ctrl_c_ends_a_sweep_with_whole_lines_and_no_process_left(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "s.toml").write_text(
        "warmup_s = 0.0\nsample_s = 0.0\nthreads = 1\n[[models]]\n"
        f'specs = ["{tmp_path}/slow.py:net"]\nbatch_sizes = {list(range(1, 40))}\n'
        'workloads = [{ mode = "infer", optimizer = "none" }]\n'
    )
    out = tmp_path / "m.jsonl"
    words = ["measure", "--sweep", str(tmp_path / "s.toml"), "-o", str(out), "--device", "cpu"]
    run = subprocess.Popen(
        [sys.executable, "-m", "prenet_gnn", *words],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
        # a shell's background jobs ignore interrupts, and so would everything they start
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and not (out.exists() and out.stat().st_size):
        time.sleep(0.1)
    # a terminal sends it to the whole group
    os.killpg(run.pid, signal.SIGINT)
    _, error = run.communicate(timeout=150)
    assert run.returncode == 130
    assert "Traceback" not in error
    assert error.rstrip().endswith("prenet: interrupted")
    notes: list[str] = []
    assert read_records(out, notes)
    assert notes == []
    assert _is_gone(run.pid)


def _is_gone(group: int) -> bool:
    """No process of a group is left; helpers of Python's own take a moment to end."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False
