"""What a user may not read or write is named in one line, and nothing is left behind."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from bad_files import DEVICE, fill

from prenet_gnn.cli import main
from prenet_gnn.errors import DataError
from prenet_gnn.measuring import MeasuredRecord, append_record, check_target, read_records
from prenet_gnn.network.checkpoint import SHIPPED
from tracing import trace

NOBODY = 65534
T4 = ("--hardware", "Tesla T4")
PREDICT = ("predict", "g.json", *T4)
# A command, and the file it needs to read.
READ = {
    "graph": (("trace", "g.json"), "g.json"),
    "model": (("trace", "net.py:net"), "net.py"),
    "device": (("hardware", "d.json"), "d.json"),
    "table": (("predict", "--table", "jobs.csv"), "jobs.csv"),
    "weights": ((*PREDICT, "--weights", "w"), "w/model.json"),
    "tensors": ((*PREDICT, "--weights", "w"), "w/weights.safetensors"),
    "records": (("evaluate", "m.jsonl"), "m.jsonl"),
}
# A command that writes, and the word that its name is put after.
WRITE = {
    "graph": ("trace", "g.json", "-o", "g2.json"),
    "page": ("trace", "g.json", "--html", "g.html"),
    "text": (*PREDICT, "-o", "p.txt"),
    "report": (*PREDICT, "--report", "p.html"),
    "table": ("predict", "--table", "jobs.csv", "-o", "out.csv"),
    "devices": ("compare", "g.json", "--devices", "Tesla T4", "--csv", "c.csv"),
    "entry": ("hardware", "T4", "-o", "h.txt"),
}


@contextmanager
def nobody() -> Iterator[None]:
    """Rights of a user who owns nothing: root may read and write whatever the modes say."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that everybody may read, with one good file of every kind."""
    path = Path(tempfile.mkdtemp(prefix="prenet-rights-"))
    path.chmod(0o755)
    try:
        fill(path)
        trace(torch.nn.Linear(8, 4), (torch.empty(2, 8),)).to_json(path / "g.json")
        (path / "d.json").write_text(f'{{"name": "Own chip", {DEVICE}}}')
        shutil.copytree(SHIPPED, path / "w", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        record = MeasuredRecord("net:mlp", 2, hardware="Tesla T4", seconds=0.1, samples_s=(0.1,))
        append_record(path / "m.jsonl", record)
        (path / "out").mkdir()
        monkeypatch.chdir(path)
        yield path
    finally:
        for each in path.rglob("*"):
            each.chmod(0o700)
        shutil.rmtree(path)


@pytest.mark.parametrize("case", READ)
def test_a_file_that_may_not_be_read(
    folder: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    words, file = READ[case]
    assert main(list(words)) == 0
    (folder / file).chmod(0)
    # Python takes a module that it has compiled before without reading its source
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    capsys.readouterr()
    with nobody():
        assert main(list(words)) == 1
    output, error = capsys.readouterr()
    assert output == ""
    lines = [line for line in error.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1
    assert "internal error" not in lines[0]
    assert file.partition("/")[0] in lines[0]


@pytest.mark.parametrize("case", WRITE)
def test_a_folder_that_may_not_be_written(
    folder: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    *words, name = WRITE[case]
    target = folder / "out" / name
    assert main([*words, str(target)]) == 0
    before = target.read_bytes()
    target.chmod(0o444)
    (folder / "out").chmod(0o555)
    capsys.readouterr()
    with nobody():
        assert main([*words, str(target)]) == 1
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1
    assert name in lines[0]
    assert "ermission denied" in lines[0]
    assert target.read_bytes() == before
    assert [each.name for each in (folder / "out").iterdir()] == [name]


def test_records_that_may_not_be_changed(folder: Path) -> None:
    path = folder / "m.jsonl"
    before = path.read_bytes()
    path.chmod(0o444)
    with nobody():
        assert len(read_records(path)) == 1
        with pytest.raises(DataError, match="Permission denied"):
            append_record(path, MeasuredRecord("net:mlp", 2, seconds=0.1))
        path_text = str(path)
    path.chmod(0)
    with nobody(), pytest.raises(DataError, match="Permission denied"):
        check_target(path_text)
    path.chmod(0o644)
    assert path.read_bytes() == before
    assert json.loads(before)["model"] == "net:mlp"
