from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pandas as pd
import pytest

from prenet_gnn.data import check_tables, find_data_dir, tables
from prenet_gnn.data.published import PUBLISHED_FILE
from prenet_gnn.errors import DataError

MEASURED = {
    "source": "timm",
    "model": "resnet50",
    "library": "timm",
    "task": "train",
    "gpu": "Tesla T4",
    "precision": "amp_fp16",
    "channels_last": "True",
    "compiled": "False",
    "framework": "torch-1.12",
    "cuda": "11.3",
    "cudnn_benchmark": "True",
    "n_gpus": "1",
    "batch_size": "64",
    "image_size": "224",
    "seq_len": "",
    "optimizer": "sgd",
    "timed": "forward+loss+backward+optimizer",
    "step_time_ms": "250",
    "step_time_mean_ms": "251",
    "step_time_std_ms": "0",
    "n_iters": "40",
    "fwd_ms": "",
    "bwd_ms": "",
    "samples_per_s": "256",
    "params_m": "25.5",
    "gmacs": "4.1",
    "macts": "11.1",
    "suspect": "False",
    "notes": "",
    "source_file": "results.csv",
}
OPERATOR = {
    "source": "neusight",
    "op": "bmm",
    "gpu": "Tesla T4",
    "precision": "fp32",
    "pass": "forward",
    "shape": '{"B":2,"M":3,"N":4,"K":5}',
    "latency_ms": "0.5",
    "framework": "torch-2.1.0",
    "split": "train",
}
MEMORY = {
    "source": "torchtune",
    "model": "llama",
    "library": "torchtune",
    "config": "",
    "task": "train",
    "gpu": "Tesla T4",
    "precision": "bf16",
    "batch_size": "2",
    "image_size": "",
    "seq_len": "2048",
    "optimizer": "adamw",
    "framework": "torch-2.4",
    "n_gpus": "1",
    "peak_memory_bytes": "1.5e10",
    "memory_kind": "torch_peak",
    "suspect": "False",
    "notes": "",
    "source_file": "README.md",
}
EXTRA = {**MEASURED, "peak_memory_bytes": "", "memory_kind": ""}


def write(path: Path, base: dict[str, str], *changes: dict[str, str]) -> None:
    frame = pd.DataFrame([{**base, **change} for change in changes or ({},)])
    frame.to_csv(path, index=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "measurements.csv.gz", MEASURED)
    write(tmp_path / "measurements_extra.csv.gz", EXTRA, {"model": "resnet18"})
    write(tmp_path / "operators.csv.gz", OPERATOR)
    write(tmp_path / "operators_extra.csv.gz", OPERATOR, {"precision": "fp16 (fp32 math)"})
    write(tmp_path / "memory.csv.gz", MEMORY)
    return tmp_path


def test_units_and_types_are_normalised(folder):
    frame = tables.read_measurements(folder)
    first = frame.iloc[0]
    assert len(frame) == 2
    assert (first["table"], first["row"]) == ("measurements.csv.gz", 2)
    assert first["step_s"] == pytest.approx(0.25)
    assert first["step_mean_s"] == pytest.approx(0.251)
    assert (first["params"], first["macs"]) == pytest.approx((25.5e6, 4.1e9))
    assert (first["image_size"], first["seq_len"]) == (224, 0)
    assert first["device"] == "Tesla T4"
    assert first["mode"] == "train"
    assert first["optimizer"] == "sgd_momentum"
    assert first["torch_version"] == 112
    for name in ("channels_last", "compiled", "cudnn_benchmark", "suspect", "has_input_pipeline"):
        assert frame[name].dtype == bool
    assert frame["batch_size"].dtype == "int64"
    assert pd.isna(first["forward_s"])


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("torch-1.12", 112),
        ("torch-2.10.0.dev20250916+cu130", 210),
        ("torch-1.7.0a0", 107),
        ("torch-2.4 or 2.5", 204),
        ("torch-unknown", 0),
        ("torch-unknown (NGC container)", 0),
        ("torch-", 0),
        ("tensorflow-1.10", 0),
        ("", 0),
    ],
)
def test_torch_versions(text, version):
    assert tables.torch_version(text) == version


def test_phases_come_in_the_order_they_run(folder):
    write(folder / "measurements.csv.gz", MEASURED, {"timed": "backward+forward+h2d"})
    assert tables.read_measurements(folder).iloc[0]["timed"] == "h2d+forward+backward"


@pytest.mark.parametrize(
    "change",
    [
        {"suspect": "True"},
        {"n_gpus": "4"},
        {"library": "fairseq"},
        {"precision": "amp_fp8"},
        {"optimizer": "lamb"},
        {"gpu": "Unknown 9999"},
        {"timed": "data_loading+forward+backward"},
    ],
    ids=lambda c: next(iter(c)),
)
def test_rows_that_cannot_teach_are_left_out(folder, change):
    write(folder / "measurements.csv.gz", MEASURED, change, {})
    (folder / "measurements_extra.csv.gz").unlink()
    kept = tables.training_rows(tables.read_measurements(folder))
    assert kept["row"].tolist() == [3]


def test_cpu_rows_are_kept_and_input_pipelines_are_not(folder):
    pipeline = {"timed": "data_loading+forward+backward"}
    write(folder / "measurements.csv.gz", MEASURED, {"n_gpus": "0"}, pipeline)
    (folder / "measurements_extra.csv.gz").unlink()
    frame = tables.read_measurements(folder)
    assert tables.training_rows(frame)["row"].tolist() == [2]
    assert frame["has_input_pipeline"].tolist() == [False, True]


def test_operators_and_memory(folder):
    frame = tables.read_operators(folder)
    assert frame["latency_s"].tolist() == pytest.approx([5e-4, 5e-4])
    assert frame["precision"].tolist() == ["fp32", "fp16"]
    assert frame["fp32_math"].tolist() == [False, True]
    assert frame["phase"].tolist() == ["forward", "forward"]
    assert tables.parse_shapes(frame)[0] == {"B": 2, "M": 3, "N": 4, "K": 5}
    memory = tables.read_memory(folder).iloc[0]
    assert (memory["peak_memory_bytes"], memory["seq_len"], memory["image_size"]) == (
        1.5e10,
        2048,
        0,
    )


def test_a_shape_that_is_not_json_names_its_line(folder):
    write(folder / "operators.csv.gz", OPERATOR, {}, {"shape": "{"})
    with pytest.raises(DataError, match=r"operators.csv.gz line 3, shape"):
        tables.parse_shapes(tables.read_operators(folder))


def test_a_sound_folder_has_no_problems(folder):
    assert check_tables(folder) == []


BAD_VALUES = [  # column, value, words of the message
    ("step_time_ms", "", "empty"),
    ("step_time_ms", "nan", "empty|not a number"),
    ("step_time_ms", "-3", "outside"),
    ("step_time_ms", "0", "outside"),
    ("step_time_ms", "inf", "outside"),
    ("step_time_ms", "1e12", "outside"),
    ("step_time_ms", "fast", "'fast' is not a number"),
    ("step_time_ms", "1,5", "not a number"),
    ("step_time_std_ms", "-1", "outside"),
    ("batch_size", "", "empty"),
    ("batch_size", "0", "outside"),
    ("batch_size", "-64", "outside"),
    ("batch_size", "1.5", "whole number"),
    ("batch_size", "many", "not a number"),
    ("image_size", "2", "outside"),
    ("image_size", "224.5", "whole number"),
    ("n_gpus", "-1", "outside"),
    ("n_gpus", "", "empty"),
    ("fwd_ms", "-0.1", "outside"),
    ("params_m", "-1", "outside"),
    ("channels_last", "maybe", "neither True nor False"),
    ("suspect", "", "empty"),
    ("model", "", "empty"),
    ("gpu", "", "empty"),
    ("task", "test", "neither train nor infer"),
    ("timed", "forward+cooking", "'cooking' is not known"),
    ("timed", "forward", "does not go with the task"),
    ("timed", "", "empty"),
]


@pytest.mark.parametrize(("column", "value", "words"), BAD_VALUES)
def test_a_bad_value_is_an_error_that_names_file_and_line(folder, column, value, words):
    write(folder / "measurements.csv.gz", MEASURED, {}, {}, {column: value})
    with pytest.raises(
        DataError, match=rf"measurements\.csv\.gz line 4.*{column}.*({words})"
    ) as info:
        tables.read_measurements(folder)
    assert "\n" not in str(info.value)
    found = [p for p in check_tables(folder) if column in p.column and p.row == 4]
    assert found, "the check does not report what the reader refuses"
    assert found[0].file == "measurements.csv.gz"


REPORTED = [  # file, base row, changes of the second row, column reported
    ("measurements.csv.gz", MEASURED, {}, ""),
    ("measurements.csv.gz", MEASURED, {"gpu": "RTX 9999"}, "gpu"),
    ("measurements.csv.gz", MEASURED, {"precision": "int3"}, "precision"),
    ("measurements.csv.gz", MEASURED, {"step_time_ms": "0.25"}, "samples_per_s+step_time_ms"),
    (
        "measurements.csv.gz",
        MEASURED,
        {"timed": "forward+backward", "fwd_ms": "100", "bwd_ms": "100"},
        "fwd_ms+bwd_ms",
    ),
    ("operators.csv.gz", OPERATOR, {"gpu": "RTX 9999"}, "gpu"),
    ("operators.csv.gz", OPERATOR, {"latency_ms": "-1"}, "latency_ms"),
    ("operators.csv.gz", OPERATOR, {"pass": "sideways"}, "pass"),
    ("operators.csv.gz", OPERATOR, {"shape": "[1]"}, "shape"),
    ("operators.csv.gz", OPERATOR, {}, ""),
    ("memory.csv.gz", MEMORY, {"peak_memory_bytes": "15"}, "peak_memory_bytes"),
    ("memory.csv.gz", MEMORY, {"memory_kind": ""}, "memory_kind"),
]


@pytest.mark.parametrize(("file", "base", "change", "column"), REPORTED)
def test_the_check_reports_row_and_column(folder, file, base, change, column):
    write(folder / file, base, {}, change)
    found = [(p.file, p.row, p.column) for p in check_tables(folder)]
    assert found == [(file, 3, column)]


def test_a_truncated_gzip_file_names_the_line(folder):
    path = folder / "measurements.csv.gz"
    write(path, MEASURED, *[{"notes": hashlib.sha256(b"%d" % i).hexdigest()} for i in range(3000)])
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=r"measurements\.csv\.gz is damaged after line \d{3,}"):
        tables.read_measurements(folder)
    assert [p.file for p in check_tables(folder)] == ["measurements.csv.gz"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty|damaged"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"not gzip at all", "damaged"),
        (gzip.compress(b"\xff\xfe\x00bad", mtime=0), "not a readable CSV"),
        (gzip.compress(b"a,b\n1,2\n1,2,3\n", mtime=0), "not a readable CSV.*line 3"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), "lacks the columns source, model"),
        (gzip.compress(b"x" * 100, mtime=0), "lacks the column"),
    ],
)
def test_files_that_are_no_table_are_an_error(folder, content, words):
    (folder / "measurements.csv.gz").write_bytes(content)
    with pytest.raises(DataError, match=words) as info:
        tables.read_measurements(folder)
    assert str(folder / "measurements.csv.gz") in str(info.value)
    assert "\n" not in str(info.value)


def test_missing_column_is_named(folder):
    frame = pd.DataFrame([MEASURED]).drop(columns="timed")
    frame.to_csv(folder / "measurements.csv.gz", index=False)
    with pytest.raises(DataError, match="lacks the column timed"):
        tables.read_measurements(folder)


def test_find_data_dir(folder, tmp_path, monkeypatch):
    monkeypatch.delenv("PRENET_DATA", raising=False)
    with pytest.raises(DataError, match=r"--data FOLDER or set PRENET_DATA; `prenet data fetch`"):
        find_data_dir()
    with pytest.raises(DataError, match="does not exist"):
        find_data_dir(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"has no measurements\.csv\.gz"):
        find_data_dir(tmp_path / "empty")
    monkeypatch.setenv("PRENET_DATA", str(folder))
    assert find_data_dir() == folder
    assert find_data_dir(str(folder)) == folder


def test_real_tables_read_complete(data_dir):
    frame = tables.read_measurements(data_dir)
    assert len(frame) == 34_139
    assert (frame["device"] != "").all()
    assert (frame["step_s"] > 0).all()
    kept = tables.training_rows(frame)
    assert len(kept) == 33_356
    assert set(kept["library"]) == {"timm", "torchvision", "transformers"}
    assert not kept["has_input_pipeline"].any()


@pytest.mark.slow
def test_real_operators_and_memory_read_complete(data_dir):
    operators = tables.read_operators(data_dir)
    assert len(operators) == 840_427
    assert (operators["device"] != "").all()
    assert len(tables.read_memory(data_dir)) == 97


@pytest.mark.slow
def test_real_tables_have_only_repeated_operator_rows(data_dir):
    # The published DeepBench and vidur tables list some measurements twice.
    problems = [p for p in check_tables(data_dir) if p.file != PUBLISHED_FILE]
    assert {(p.file, p.problem) for p in problems} == {
        ("operators_extra.csv.gz", "repeats an earlier row in every column")
    }


def test_row_problems_print_as_one_line(folder):
    write(folder / "memory.csv.gz", MEMORY, {"config": json.dumps({"a": 1})}, {"n_gpus": "x"})
    (problem,) = (p for p in check_tables(folder) if p.column == "n_gpus")
    assert str(problem) == "memory.csv.gz line 3, n_gpus: 'x' is not a number"
