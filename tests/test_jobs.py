"""Rows of text become jobs; what is wrong with a row is said in one line."""

from __future__ import annotations

import csv
import gzip
import os

import pytest

from prenet_gnn.common import processes
from prenet_gnn.common.files import write_whole
from prenet_gnn.errors import ConfigError, DataError
from prenet_gnn.predictor import bulk
from prenet_gnn.predictor.bulk import Answer, answer_rows, to_csv, trace_all
from prenet_gnn.predictor.jobs import Job, TraceRequest, parse_job, read_rows
from prenet_gnn.workload.workload import Workload

ROW = {"model": "timm:resnet18", "batch_size": "32", "hardware": "Tesla T4"}


def test_defaults_fill_empty_fields():
    job = parse_job(ROW)
    assert job == Job(TraceRequest("timm:resnet18"), 32, Workload(framework=""), "Tesla T4")
    empty = dict.fromkeys(("image_size", "mode", "precision", "compiled", "framework"), "")
    assert parse_job({**ROW, **empty}) == job
    assert parse_job({**ROW, **dict.fromkeys(empty, "nan")}) == job


def test_every_column_is_read():
    job = parse_job(
        {
            **ROW,
            "batch_size": "32.0",
            "image_size": "288.0",
            "seq_len": "512",
            "mode": "train",
            "precision": "amp_fp16",
            "channels_last": "TRUE",
            "compiled": "1",
            "framework": "torch-2.4.0",
            "cudnn_benchmark": "false",
            "optimizer": "sgd",
            "timed": "forward+loss+backward",
            "attention": "eager",
        }
    )
    assert job.request == TraceRequest("timm:resnet18", 288, 512, "train", "eager")
    assert job.workload == Workload(
        mode="train",
        precision="amp_fp16",
        optimizer="sgd",
        channels_last=True,
        compiled=True,
        cudnn_benchmark=False,
        framework="torch-2.4.0",
        timed="forward+loss+backward",
    )


@pytest.mark.parametrize(
    ("fields", "optimizer"),
    [
        ({}, "adamw"),
        ({"mode": "infer"}, "none"),
        ({"timed": "forward+backward"}, "none"),
        ({"timed": "forward+loss+backward+optimizer"}, "adamw"),
        ({"optimizer": "none"}, "none"),
        ({"optimizer": "sgd", "timed": "forward+backward"}, "sgd"),
    ],
)
def test_the_default_optimizer_follows_what_is_timed(fields, optimizer):
    assert parse_job({**ROW, **fields}).workload.optimizer == optimizer


@pytest.mark.parametrize(
    ("framework", "asked", "attention"),
    [
        ("", "", None),
        ("torch-1.12", "", "eager"),
        ("torch-1.13.1", "", "eager"),
        ("torch-2.1.0", "", None),
        ("torch-unknown", "", None),
        ("torch-1.12", "sdpa", "sdpa"),
        ("torch-2.1.0", "EAGER", "eager"),
    ],
)
def test_attention_is_that_of_the_framework_unless_asked(framework, asked, attention):
    job = parse_job({**ROW, "framework": framework, "attention": asked})
    assert job.request.attention == attention
    assert job.workload.framework == framework


@pytest.mark.parametrize("library", ["timm", "transformers"])
@pytest.mark.parametrize("version", [(1, 13), (2, 0), (2, 4), (2, 5), (2, 9)])
def test_a_question_and_a_measured_row_know_the_same_attention(library, version):
    pd = pytest.importorskip("pandas")
    from prenet_gnn.data.keys import graph_requests

    framework = "torch-{}.{}".format(*version)
    job = parse_job({**ROW, "model": f"{library}:net", "framework": framework})
    row = {"library": library, "model": "net", "image_size": 0, "seq_len": 0, "mode": "train"}
    row["torch_version"] = 100 * version[0] + version[1]
    (key,) = graph_requests(pd.DataFrame([row]))
    assert (job.request.attention or "sdpa") == key.attention


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model": ""}, "'model' is empty"),
        ({"hardware": "nan"}, "'hardware' is empty"),
        ({"batch_size": ""}, "'batch_size' is empty"),
        ({"batch_size": "many"}, "whole number"),
        ({"batch_size": "3.5"}, "whole number"),
        ({"batch_size": "inf"}, "whole number"),
        ({"batch_size": "0"}, "between 1 and"),
        ({"batch_size": "-4"}, "between 1 and"),
        ({"image_size": "1e30"}, "between 1 and"),
        ({"mode": "trian"}, "Did you mean 'train'"),
        ({"precision": "fp8"}, "Allowed: fp32"),
        ({"optimizer": "ranger"}, "optimizer 'ranger'"),
        ({"compiled": "maybe"}, "true or false"),
        ({"timed": "forward+dinner"}, "dinner"),
        ({"attention": "flash"}, "Allowed: sdpa, eager"),
    ],
)
def test_a_wrong_field_is_named(fields, words):
    with pytest.raises((DataError, ConfigError), match=words.replace("+", r"\+")):
        parse_job({**ROW, **fields})


def write(path, *rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def test_a_table_is_read_whole(tmp_path):
    path = write(tmp_path / "jobs.csv", [*ROW, "note"], [*ROW.values(), "a, b\nc"])
    assert read_rows(path) == ([*ROW, "note"], [{**ROW, "note": "a, b\nc"}])
    packed = tmp_path / "jobs.csv.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + path.read_bytes()))
    assert read_rows(packed) == read_rows(path)


def test_a_row_with_too_many_fields_is_kept_to_be_reported(tmp_path):
    path = write(tmp_path / "jobs.csv", list(ROW), [*ROW.values(), "x", "y"], ["timm:resnet18"])
    _, rows = read_rows(path)
    assert rows[0][""] == "x,y"
    assert rows[1] == {"model": "timm:resnet18", "batch_size": "", "hardware": ""}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "lacks the column model, batch_size, hardware"),
        (b"model,hardware\n", "lacks the column batch_size"),
        (b"model,batch_size,hardware,model\n", "more than once"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b'model,batch_size,hardware\n"' + b"x" * 200_000, "not a readable CSV"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path, content, words):
    path = tmp_path / "jobs.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_rows(path)


def test_a_torn_gzip_file_is_refused(tmp_path):
    path = tmp_path / "jobs.csv.gz"
    path.write_bytes(gzip.compress(b"model,batch_size,hardware\n" * 50)[:-10])
    with pytest.raises(DataError, match="not a readable CSV"):
        read_rows(path)


def test_answers_go_behind_the_columns_and_replace_old_ones():
    rows = [{**ROW, "seconds": "9"}, {**ROW, "seconds": "9", "": "lost"}]
    answers = [Answer(0.25, 0.2, 1 / 3, 5), Answer(error="no, not\n this")]
    text = to_csv([*ROW, "seconds"], rows, answers)
    assert text.splitlines()[0] == (
        "model,batch_size,hardware,seconds,low_s,high_s,peak_memory_bytes,error"
    )
    back = list(csv.DictReader(text.splitlines(keepends=True)))
    assert back[0]["seconds"] == "0.25"
    assert back[0]["high_s"] == "0.333333333"
    assert back[1]["seconds"] == ""
    assert back[1]["error"] == "no, not\n this"


def _crashing(task):
    key, batch_sizes = task
    if key.model == "crash":
        os._exit(9)
    return dict.fromkeys(batch_sizes, key.model)


@pytest.mark.slow
def test_a_crash_of_a_worker_harms_no_other_model(monkeypatch):
    monkeypatch.setattr(bulk, "trace_sizes", _crashing)
    monkeypatch.setattr(processes, "_start_worker", int)
    names = ["a", "b", "crash", "c", "d", "e", "f", "crash too", "g"]
    found = dict(trace_all({TraceRequest(name): (1, 2) for name in names}, workers=2))
    assert {key.model for key in found} == set(names)
    for key, graphs in found.items():
        wanted = "ended abruptly" if key.model == "crash" else key.model
        assert all(wanted in str(graph) for graph in graphs.values())


def test_write_whole_leaves_the_old_file_when_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "out.csv"
    write_whole(path, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]


def test_write_whole_follows_a_link(tmp_path):
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("real.csv")
    write_whole(tmp_path / "link.csv", "new")
    assert (tmp_path / "real.csv").read_text() == "new"
    assert (tmp_path / "link.csv").is_symlink()


class Stub:
    """Answers with the batch size, and counts how often it is asked."""

    def __init__(self, bad: str = "") -> None:
        self.bad, self.calls = bad, 0

    def predict_many(self, graphs, hardware, workloads):
        self.calls += 1
        pairs = zip(graphs, hardware, workloads, strict=True)
        return [self.predict(g, hardware=h, workload=w) for g, h, w in pairs]

    def predict(self, graph, hardware, workload):
        if workload.precision == self.bad:
            raise ConfigError(f"no {self.bad}")
        return Answer(float(graph.batch_size), 0.1, 9e9, 7)


def test_rows_of_one_model_are_traced_once_and_asked_together(monkeypatch):
    pytest.importorskip("timm")
    traced = []
    real = bulk.trace_request
    monkeypatch.setattr(bulk, "trace_request", lambda *a: traced.append(a) or real(*a))
    rows = [
        ROW,
        {**ROW, "batch_size": "8"},
        {**ROW, "mode": "infer"},
        {**ROW, "model": "timm:resnet_18"},
        {**ROW, "hardware": "Tesla T5"},
        {**ROW, "": "too much"},
    ]
    predictor, done = Stub(), []
    answers = answer_rows(rows, predictor, progress=done.append)
    assert [answer.seconds for answer in answers] == [32.0, 8.0, 32.0, None, None, None]
    assert "resnet18" in answers[3].error
    assert "Tesla T5" in answers[4].error
    assert "too much" in answers[5].error
    assert len(traced) == 3
    assert predictor.calls == 2
    assert sum(done) == len(rows)


def test_a_row_that_the_predictor_refuses_fills_its_error():
    pytest.importorskip("timm")
    rows = [ROW, {**ROW, "precision": "bf16"}]
    answers = answer_rows(rows, Stub(bad="bf16"))
    assert [answer.error for answer in answers] == ["", "no bf16"]
    assert answers[0].seconds == 32.0
