"""Files that must be refused with one clear line, whatever is wrong with them."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.errors import CheckpointError, DataError, PreNetError
from prenet_gnn.measuring import MeasuredRecord, load_sweep, read_records
from prenet_gnn.network.checkpoint import SHIPPED, load_checkpoint
from prenet_gnn.predictor.calibration import Calibration, load_calibration
from prenet_gnn.predictor.jobs import parse_job, read_rows
from tracing import OpGraph, TraceError, trace

# What any text file can suffer; each takes good bytes and gives bad ones.
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "zeros": lambda data: b"\0" * len(data),
    "not text": lambda data: b"\xff\xfe\xfa" + data,
    "another kind": lambda data: b"PK\x03\x04 this is an archive",
    "a list": lambda data: b"[]",
    "a number": lambda data: b"7",
    "null": lambda data: b"null",
    "nested": lambda data: b"[" * 100_000,
}
GOOD_DEVICE: dict[str, Any] = {
    "name": "Own chip",
    "multiprocessors": 80,
    "memory_bytes": 2**35,
    "memory_bytes_per_s": 1.2e12,
    "peak_fp32_flops_per_s": 2e13,
}
GOOD_RECORD = MeasuredRecord("net:mlp", 2, hardware="CPU", seconds=0.1)
GOOD_CALIBRATION = Calibration("CPU", 3, {"all": 0.1}, ((0.01,),), 0.05)
GOOD_SWEEP = '[[models]]\nspecs = ["net:mlp"]\nbatch_sizes = [1]\n'
GOOD_JOBS = "model,batch_size,hardware\nnet:mlp,2,Tesla T4\n"


@pytest.fixture(scope="module")
def graph_json() -> str:
    """A small graph as text."""
    return trace(torch.nn.Linear(4, 4), (torch.empty(2, 4),)).to_json()


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "graph": ("g.json", lambda path: OpGraph.from_json(path)),
    "packed graph": ("g.json.gz", lambda path: OpGraph.from_json(path)),
    "device": ("d.json", lambda path: get_hardware(path)),
    "device in TOML": ("d.toml", lambda path: get_hardware(path)),
    "calibration": ("c.json", lambda path: load_calibration(path)),
    "records": ("m.jsonl", lambda path: read_records(path)),
    "packed records": ("m.jsonl.gz", lambda path: read_records(path)),
    "sweep": ("s.toml", lambda path: load_sweep(path)),
    "jobs": ("j.csv", lambda path: read_rows(path)),
    "packed jobs": ("j.csv.gz", lambda path: read_rows(path)),
}
# A file of records without a whole line, and a table without a row, are not damaged.
FINE = {
    ("records", "empty"),
    ("records", "cut"),
    ("records", "zeros"),
    ("records", "another kind"),
    ("records", "a list"),
    ("records", "a number"),
    ("records", "null"),
    ("records", "nested"),
    ("packed records", "empty"),
}


def _good(name: str, graph_json: str) -> bytes:
    texts = {
        "graph": graph_json,
        "device": json.dumps(GOOD_DEVICE),
        "device in TOML": "\n".join(f"{k} = {json.dumps(v)}" for k, v in GOOD_DEVICE.items()),
        "calibration": GOOD_CALIBRATION.to_json(),
        "records": GOOD_RECORD.to_json() + "\n",
        "sweep": GOOD_SWEEP,
        "jobs": GOOD_JOBS,
    }
    data = texts[name.removeprefix("packed ")].encode()
    return gzip.compress(data) if name.startswith("packed") else data


@pytest.mark.parametrize("name", READERS)
def test_the_good_file_is_read(tmp_path: Path, graph_json: str, name: str) -> None:
    file, read = READERS[name]
    (tmp_path / file).write_bytes(_good(name, graph_json))
    assert read(tmp_path / file)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_one_line(
    tmp_path: Path, graph_json: str, name: str, damage: str
) -> None:
    file, read = READERS[name]
    (tmp_path / file).write_bytes(DAMAGE[damage](_good(name, graph_json)))
    if (name, damage) in FINE:
        read(tmp_path / file)
        return
    with pytest.raises((PreNetError, TraceError)) as caught:
        read(tmp_path / file)
    assert len(str(caught.value).splitlines()) <= 5  # device files: one line per field
    assert "\n\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in READERS if name.startswith("packed")])
def test_flipped_bits_in_a_packed_file(tmp_path: Path, graph_json: str, name: str) -> None:
    file, read = READERS[name]
    data = bytearray(_good(name, graph_json))
    for place in range(12, len(data) - 1, 3):
        data[place] ^= 0x55
    (tmp_path / file).write_bytes(bytes(data))
    with pytest.raises((PreNetError, TraceError)) as caught:
        read(tmp_path / file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", READERS)
def test_a_missing_file_and_a_folder_are_named(tmp_path: Path, name: str) -> None:
    file, read = READERS[name]
    for path in (tmp_path / file, tmp_path / f"folder-{file}"):
        if "folder" in path.name:
            path.mkdir()
        with pytest.raises((PreNetError, TraceError, OSError), match=file.partition(".")[0]):
            read(path)


def _nodes(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    return lambda data: [change(node) for node in data["nodes"]]  # type: ignore[func-returns-value]


GRAPHS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "schema": lambda data: data.update(schema="other-9"),
    "no nodes": lambda data: data.pop("nodes"),
    "nodes is text": lambda data: data.update(nodes="abc"),
    "nodes are numbers": lambda data: data.update(nodes=[1, 2]),
    "inputs is a list": lambda data: data.update(inputs=[1]),
    "batch size is text": lambda data: data.update(batch_size="many"),
    "batch size is null": lambda data: data.update(batch_size=None),
    "outputs point nowhere": lambda data: data.update(outputs=[["node", 99, 0]]),
    "parameters are short": lambda data: data.update(parameters=[["a"]]),
    "probe is odd": lambda data: data.update(probe=7),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_graphs_with_wrong_fields(tmp_path: Path, graph_json: str, case: str) -> None:
    data = json.loads(graph_json)
    GRAPHS[case](data)
    path = tmp_path / "g.json"
    path.write_text(json.dumps(data))
    with pytest.raises(TraceError) as caught:
        OpGraph.from_json(path)
    assert "\n" not in str(caught.value)


ROWS = {
    "no model": {"model": ""},
    "no device": {"hardware": " "},
    "no batch size": {"batch_size": ""},
    "batch size is text": {"batch_size": "two"},
    "batch size is broken": {"batch_size": "2.5"},
    "batch size is negative": {"batch_size": "-2"},
    "batch size is zero": {"batch_size": "0"},
    "batch size is infinite": {"batch_size": "inf"},
    "batch size is huge": {"batch_size": "1e300"},
    "image size is zero": {"image_size": "0"},
    "image size is text": {"image_size": "224x224"},
    "seq_len is negative": {"seq_len": "-1"},
    "mode": {"mode": "dream"},
    "precision": {"precision": "fp23"},
    "optimizer": {"optimizer": "adamx"},
    "channels_last": {"channels_last": "maybe"},
    "compiled": {"compiled": "2"},
    "cudnn_benchmark": {"cudnn_benchmark": "on"},
    "timed": {"timed": "forward+sleep"},
    "timed is a plus": {"timed": "+"},
    "attention": {"attention": "flash"},
}


@pytest.mark.parametrize("case", ROWS)
def test_rows_of_a_table_of_jobs(case: str) -> None:
    row = {"model": "net:mlp", "batch_size": "2", "hardware": "Tesla T4"}
    parse_job(row)
    with pytest.raises(PreNetError) as caught:
        parse_job(row | ROWS[case])
    assert "\n" not in str(caught.value)


TABLES = {
    "no column": "a,b\n1,2\n",
    "twice the same column": "model,batch_size,hardware,model\na,1,T4,b\n",
    "only a name": "model\n",
    "a quote that never ends": 'model,batch_size,hardware\n"a,1,T4\n' + "x" * 200_000,
}


@pytest.mark.parametrize("case", TABLES)
def test_tables_of_jobs(tmp_path: Path, case: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(TABLES[case])
    with pytest.raises(DataError) as caught:
        read_rows(path)
    assert "\n" not in str(caught.value)


RECORDS: dict[str, dict[str, Any]] = {
    "a status": {"status": "fine"},
    "a field": {"speed": 3},
    "a newer schema": {"schema": 99},
    "schema is text": {"schema": "x"},
    "operators": {"operators": [["a"]]},
    "samples": {"samples_s": 3},
    "no model": {"model": None},
    "seconds is text": {"seconds": "fast"},
    "seconds is negative": {"seconds": -1.0},
    "seconds is zero": {"seconds": 0.0},
    "seconds is not a number": {"seconds": float("nan")},
    "seconds is infinite": {"seconds": float("inf")},
    "batch size is zero": {"batch_size": 0},
    "batch size is text": {"batch_size": "2"},
}


@pytest.mark.parametrize("case", RECORDS)
def test_records_with_wrong_fields(tmp_path: Path, case: str) -> None:
    path = tmp_path / "m.jsonl"
    good = json.loads(GOOD_RECORD.to_json())
    path.write_text(json.dumps(good) + "\n" + json.dumps(good | RECORDS[case]) + "\n")
    with pytest.raises(DataError, match="line 2") as caught:
        read_records(path)
    assert "\n" not in str(caught.value)


def _damaged(tmp_path: Path, change: Callable[[Path], object]) -> Path:
    folder = tmp_path / "w"
    shutil.copytree(SHIPPED, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    change(folder)
    return folder


def _describe(**changes: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        path = folder / "model.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def _header(length: int) -> Callable[[Path], object]:
    """Says that the header of the weights is so long, and mends the hash."""
    import hashlib

    def change(folder: Path) -> None:
        path = folder / "weights.safetensors"
        data = length.to_bytes(8, "little") + path.read_bytes()[8:]
        path.write_bytes(data)
        _describe(sha256=hashlib.sha256(data).hexdigest())(folder)

    return change


WEIGHTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "another schema": (_describe(schema="prenet-weights-0"), "train again"),
    "no schema": (_describe(schema=None), "train again"),
    "other columns": (_describe(fields={"node": ["log_tick"]}), "other columns"),
    "another hash": (_describe(sha256="0" * 64), "sha256"),
    "no hash": (_describe(sha256=None), "sha256"),
    "no members": (_describe(members=0), "do not fit"),
    "too many members": (_describe(members=99), "do not fit"),
    "an unknown setting": (_describe(config={"layerz": 3}), "do not fit"),
    "a huge network": (_describe(config={"encoder": {"hidden": 10**9}}), "do not fit"),
    "latents are text": (_describe(latents="x"), "do not fit"),
    "interval is text": (_describe(intervals={"train": "wide"}), "do not fit"),
    "description is a list": (lambda f: (f / "model.json").write_text("[]"), "schema"),
    "description is cut": (lambda f: (f / "model.json").write_text('{"schema'), "no JSON"),
    "description is missing": (lambda f: (f / "model.json").unlink(), "holds no weights"),
    "weights are missing": (lambda f: (f / "weights.safetensors").unlink(), "holds no weights"),
    "weights are empty": (lambda f: (f / "weights.safetensors").write_bytes(b""), "sha256"),
    "an oversized header": (_header(2**62), "do not fit"),
    "a header beyond the file": (_header(2**27), "do not fit"),
    "no header": (_header(0), "do not fit"),
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights_that_do_not_fit(tmp_path: Path, case: str) -> None:
    change, says = WEIGHTS[case]
    with pytest.raises(CheckpointError, match=says) as caught:
        load_checkpoint(_damaged(tmp_path, change))
    assert "\n" not in str(caught.value)


def test_oversized_files_are_not_read(tmp_path: Path) -> None:
    """Sparse files of a terabyte: their size alone refuses them."""
    for name in ("model.json", "weights.safetensors"):
        folder = _damaged(tmp_path / name, lambda f, name=name: _grow(f / name))  # type: ignore[misc]
        with pytest.raises(CheckpointError, match="larger than"):
            load_checkpoint(folder)


def _grow(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(2**34)


def test_pickled_weights_are_never_opened(tmp_path: Path) -> None:
    """A pickle that would write a file when loaded."""
    import hashlib
    import pickle

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "exploded",))

    def change(folder: Path) -> None:
        data = pickle.dumps(Bomb())
        (folder / "weights.safetensors").write_bytes(data)
        _describe(sha256=hashlib.sha256(data).hexdigest())(folder)

    with pytest.raises(CheckpointError):
        load_checkpoint(_damaged(tmp_path, change))
    assert not (tmp_path / "exploded").exists()
