"""Published training runs with the whole system known: reading, checking, graphs, study."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from experiments import published as study
from prenet_gnn.data import check_tables, published, read_published
from prenet_gnn.data.families import architecture, family_of
from prenet_gnn.data.keys import GraphKey, graph_requests
from prenet_gnn.errors import DataError

BERT = {
    "run_id": "lab/one/bert",
    "source": "lab",
    "system_id": "lab/one",
    "model": "bert-base-uncased",
    "library": "transformers",
    "head": "question-answering",
    "task": "train",
    "gpu": "Tesla V100-SXM2-16GB",
    "precision": "fp16",
    "channels_last": "False",
    "compiled": "False",
    "framework": "PyTorch 2.5.0a0+abc.nv24.10",
    "cuda": "V12.6.77",
    "cudnn_benchmark": "False",
    "n_gpus": "1",
    "batch_size": "20",
    "image_size": "",
    "seq_len": "384",
    "optimizer": "fused_adam",
    "timed": "zero_grad+forward+loss+backward+optimizer+logging",
    "step_time_ms": "250",
    "step_time_std_ms": "",
    "n_iters": "48",
    "host_cpu": "Some CPU",
    "host_memory": "503Gi",
    "driver": "550.90",
    "os": "Ubuntu",
    "board": "",
    "source_file": "a.txt",
    "runs": "3",
    "runs_spread": "0.01",
}
RESNET = {
    **BERT,
    "run_id": "lab/one/resnet",
    "model": "resnet50",
    "library": "torchvision",
    "head": "",
    "image_size": "224",
    "seq_len": "",
    "cudnn_benchmark": "True",
    "optimizer": "sgd_momentum",
    "timed": "zero_grad+forward+loss+backward+optimizer",
    "host_memory": "1.5T",
}


def write(folder: Path, *rows: dict[str, str]) -> Path:
    pd.DataFrame(rows or (BERT, RESNET)).to_csv(folder / published.PUBLISHED_FILE, index=False)
    return folder


def problems(folder: Path) -> list[tuple[int, str]]:
    found = [p for p in check_tables(folder) if p.file == published.PUBLISHED_FILE]
    return [(p.row, p.column) for p in found]


def test_rows_come_in_si_units_and_the_spellings_of_the_package(tmp_path):
    bert, resnet = read_published(write(tmp_path)).to_dict("records")
    assert bert["model"] == "bert-base-uncased@BertForQuestionAnswering"
    assert (bert["device"], bert["mode"]) == ("Tesla V100-SXM2-16GB", "train")
    assert bert["step_s"] == pytest.approx(0.25)
    assert (bert["framework"], bert["torch_version"]) == ("torch-2.5.0a0+abc.nv24.10", 205)
    assert (bert["cuda"], bert["optimizer"], bert["runs"]) == ("12.6.77", "fused_adam", 3)
    assert bert["timed"] == resnet["timed"] == "zero_grad+forward+loss+backward+optimizer"
    assert (bert["host_memory_bytes"], resnet["host_memory_bytes"]) == (503 * 2**30, 1.5 * 2**40)
    assert (bert["image_size"], bert["seq_len"], resnet["model"]) == (0, 384, "resnet50")
    assert (bert["cudnn_benchmark"], resnet["cudnn_benchmark"]) == (False, True)
    assert (bert["table"], bert["row"]) == (published.PUBLISHED_FILE, 2)


def test_attention_is_what_the_script_ran_whatever_the_version(tmp_path):
    keys = graph_requests(read_published(write(tmp_path))).tolist()
    name = "bert-base-uncased@BertForQuestionAnswering"
    assert keys == [
        GraphKey("transformers", name, 0, 384, "train", "eager"),
        GraphKey("torchvision", "resnet50", 224, 0, "train", "sdpa"),
    ]


def test_a_head_makes_no_other_architecture():
    name = "bert-large-uncased@BertForQuestionAnswering"
    assert architecture("transformers", name) == "bert_large"
    assert family_of("transformers", name) == "bert"


BAD = [  # column, value, words of the message
    ("step_time_ms", "-3", "outside"),
    ("step_time_ms", "", "empty"),
    ("batch_size", "1.5", "whole number"),
    ("n_gpus", "0", "outside"),
    ("runs", "0", "outside"),
    ("runs_spread", "20", "outside"),
    ("host_cpu", "", "empty"),
    ("host_memory", "a lot", "no size"),
    ("framework", "TensorFlow 2.1", "no version of PyTorch"),
    ("head", "translation", "no head known"),
    ("run_id", BERT["run_id"], "an earlier run"),
    ("timed", "forward+cooking", "'cooking' is not known"),
    ("channels_last", "maybe", "neither True nor False"),
]


@pytest.mark.parametrize(("column", "value", "words"), BAD)
def test_a_bad_value_is_an_error_that_names_file_and_line(tmp_path, column, value, words):
    write(tmp_path, BERT, {**BERT, "run_id": "lab/two/bert", column: value})
    with pytest.raises(DataError, match=rf"lambda\.csv\.gz line 3.*{column}.*{words}"):
        read_published(tmp_path)
    assert {row for row, at in problems(tmp_path) if column in at} == {3}


def test_the_check_knows_the_table_and_asks_for_none(tmp_path):
    assert problems(tmp_path) == []
    assert problems(write(tmp_path)) == []
    write(
        tmp_path, BERT, {**RESNET, "gpu": "RTX 9999"}, {**RESNET, "run_id": "b", "precision": "?"}
    )
    assert problems(tmp_path) == [(3, "gpu"), (4, "precision")]


def test_the_study_counts_each_device_and_work_once():
    columns = ("device", "work", "system_id", "ratio", "error", "held", "card")
    lines = [("A", "x", "s", r, abs(r - 1), r < 1.4, "A") for r in (1.2, 1.2, 1.2, 1.2, 1.5)]
    lines += [("B", "x", "t", 1.0, 0.0, True, "other"), ("C", "x", "t", 0.9, 0.1, True, "other")]
    found = study.summary(pd.DataFrame(lines, columns=columns))
    everything, once = found["overall"]
    assert (everything["runs"], once["runs"], found["systems"]) == (7, 3, 2)
    assert everything["mape"] == pytest.approx(1.4 / 7)
    assert once["mape"] == pytest.approx((1.3 / 5 + 0.0 + 0.1) / 3, abs=1e-4)
    assert once["ratio"] == 1.0
    assert once["coverage"] == pytest.approx((0.8 + 1 + 1) / 3, abs=1e-4)


def test_groups_of_few_runs_are_merged_or_left_out():
    columns = ("device", "ratio", "error", "held")
    runs = [("A", 1.0, 0.0, True)] * 3 + [("B", 2.0, 1.0, False)] * 2
    few = study.by(pd.DataFrame(runs, columns=columns), "device")
    assert [(row["group"], row["runs"]) for row in few] == [("A", 3)]
    merged = study.by(pd.DataFrame([*runs, ("C", 2.0, 1.0, False)], columns=columns), "device")
    assert [(row["group"], row["runs"]) for row in merged] == [("A", 3), ("few runs each", 3)]


def test_the_study_asks_what_was_run(tmp_path):
    runs = study.single_runs(read_published(write(tmp_path, BERT, {**RESNET, "n_gpus": "8"})))
    (row,) = runs.itertuples()
    assert (row.work, row.card) == ("bert-base-uncased fp16", "Tesla V100")
    workload = study.workload_of_run(row)
    assert (workload.optimizer, workload.precision) == ("fused_adam", "fp16")
    assert (workload.framework_version, workload.cudnn_benchmark) == ((2, 5), False)
    assert study.card_of("NVIDIA A40") == "other cards"


def test_the_committed_result_has_groups_only():
    from experiments.shared.results import read_result

    result = read_result("published")
    rows = [row for part in ("by_card", "by_work", "by_device") for row in result[part]]
    assert rows and all(row["runs"] >= study.FEWEST_RUNS for row in rows)
    assert {"group", "runs", "ratio", "mape", "coverage"} == set().union(*rows)
    assert "measurements_lambda.csv.gz" in result["data_sha256"]
    assert "| all runs |" in study.table(result)


def test_the_real_table_reads_complete(data_dir):
    if not (data_dir / published.PUBLISHED_FILE).exists():
        pytest.skip("a collection without published runs")
    frame = read_published(data_dir)
    assert len(frame) == 694
    assert (frame["step_s"] > 0).all() and (frame["torch_version"] >= 104).all()
    assert (frame["host_memory_bytes"] > 2**30).all()
    assert {row for row, column in problems(data_dir) if column != "gpu"} == set()
    assert graph_requests(frame).nunique() == 3
