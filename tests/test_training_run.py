"""The whole of `prenet train` and `prenet evaluate`, on twelve made-up rows and without a cache."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_training import made_up_rows
from torch import nn

from prenet_gnn import load_predictor
from prenet_gnn.cli import main
from prenet_gnn.data import graphs, keys, tables
from prenet_gnn.data.splits import Split
from prenet_gnn.encoding.attention import eager_attention
from prenet_gnn.errors import ConfigError, DataError
from prenet_gnn.evaluation.baselines.pooling import columns_of, pooled_features
from prenet_gnn.evaluation.report import stored_report
from prenet_gnn.measuring import MeasuredRecord, append_record
from prenet_gnn.network.checkpoint import load_checkpoint
from prenet_gnn.training import prepare, run
from prenet_gnn.training.config import RunConfig, load_config
from prenet_gnn.training.fit import fit
from prenet_gnn.training.store import base_key
from tracing import trace

QUICK = [
    "train.epochs=1", "train.rows_per_epoch=0", "train.operators_per_step=4",
    "model.encoder.hidden=16",
    "known.epochs=1", "members=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> Any:
    made = made_up_rows()
    return dataclasses.replace(made, frame=made.frame.assign(source="made up"))


@pytest.fixture
def prepared(rows: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(prepare, "prepare_rows", lambda data, **_: rows)
    monkeypatch.setattr(prepare, "prepare_operators", lambda data: rows)
    return rows


def test_training_writes_weights_that_predict_and_a_second_start_repeats_nothing(
    prepared: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "-o", str(tmp_path / "w"), "--seed", "3"]
    words += [part for change in (*QUICK, "members=2") for part in ("--set", change)]
    assert main(words) == 0
    shown = capsys.readouterr().out
    # of each network, and of its copy for known settings
    assert [shown.count(f"epoch 1: member {number}") for number in (1, 2)] == [2, 2]
    made = load_checkpoint(tmp_path / "w")
    assert len(made.models) == 2
    assert made.facts.rows == 12
    assert made.facts.sources == made.facts.operator_sources == {"made up": 12}
    assert made.facts.run["train"]["seed"] == 3
    assert made.facts.versions["torch"] == torch.__version__
    first, second = (dict(model.state_dict()) for model in made.models)
    assert not all(torch.equal(first[name], second[name]) for name in first)
    graph = trace(nn.Linear(4, 4), (torch.empty(2, 4),))
    assert load_predictor(tmp_path / "w").predict(graph, "Tesla T4").seconds > 0
    assert main(words) == 0
    assert "epoch 1" not in capsys.readouterr().out
    again = load_checkpoint(tmp_path / "w")
    assert all(torch.equal(first[n], v) for n, v in again.models[0].state_dict().items())


def test_rows_are_prepared_from_tables_and_cache(
    rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[set[Any]] = []
    wanted = [key.graph for key in rows.keys]
    monkeypatch.setattr(tables, "find_data_dir", lambda data: tmp_path)
    monkeypatch.setattr(tables, "read_measurements", lambda folder: rows.frame)
    monkeypatch.setattr(tables, "training_rows", lambda frame: frame)
    monkeypatch.setattr(keys, "graph_requests", lambda frame: wanted)
    monkeypatch.setattr(keys, "cache_root", lambda *_: tmp_path)
    monkeypatch.setattr(graphs, "build_cache", lambda asked, **_: built.append(set(asked)))
    rows.store.save(tmp_path / prepare.ENCODED)
    found = prepare.prepare_rows(None)
    assert built == [{base_key(key.graph) for key in rows.keys}]
    assert found.seconds.tolist() == rows.seconds.tolist()
    (tmp_path / prepare.ENCODED).unlink()
    with pytest.raises(DataError, match="prenet data check"):
        prepare.prepare_rows(None)


def test_a_fold_is_scored_beside_its_baselines(
    prepared: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = np.zeros(0, dtype=np.int64)
    test = {"random": np.array([0, 5]), "unseen-device": np.array([8, 11]), "unseen-both": nobody}
    left = np.array([1, 2, 3, 4, 6, 7, 9, 10])
    split = Split("fold-1", left, test, devices=("Tesla T4",), families=("net",))
    monkeypatch.setattr("prenet_gnn.data.splits.joint_fold", lambda frame, number: split)
    words = ["evaluate", "--fold", "1"]
    words += [part for change in QUICK for part in ("--set", change)]
    assert main(words) == 0
    output = capsys.readouterr().out
    shown = [tuple(line.split()[:3]) for line in output.splitlines()[1:7]]
    assert shown == [
        (split, name, "2")
        for split in ("random", "unseen-device")
        for name in ("gnn", "roofline", "flops")
    ]
    assert "held-out devices: Tesla T4" in output
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["scores"]
    assert [(row["split"], row["predictor"]) for row in found] == [row[:2] for row in shown]


def fitted_by(words: list[str], monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Settings, devices of operators, and whether it is a copy, of all that a command fits."""
    fits: list[tuple[Any, ...]] = []

    def noted(material: Any, model: Any, config: Any, **more: Any) -> Any:
        devices = sorted(set(material.operators.frame["gpu"]))
        fits.append((model, config, devices, more.get("start") is not None))
        return fit(material, model, config, **more)

    with monkeypatch.context() as patch:
        patch.setattr(run, "fit", noted)
        words += [part for change in (*QUICK, "members=2") for part in ("--set", change)]
        assert main(words) == 0
    return fits


def test_a_fold_is_fitted_as_what_ships(
    prepared: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_t4 = np.flatnonzero(prepared.frame["gpu"] == "Tesla T4")
    rest = np.setdiff1d(np.arange(len(prepared)), on_t4)
    split = Split("fold-0", rest, {"unseen-device": on_t4}, devices=("Tesla T4",))
    monkeypatch.setattr("prenet_gnn.data.splits.joint_fold", lambda frame, number: split)
    trained = fitted_by(["train", "-o", str(tmp_path)], monkeypatch)
    evaluated = fitted_by(["evaluate", "--fold", "0"], monkeypatch)
    assert len(trained) == 4
    assert [fit[:2] + fit[3:] for fit in trained] == [fit[:2] + fit[3:] for fit in evaluated]
    assert all("Tesla T4" in fit[2] for fit in trained)
    assert [[*fit[2], "Tesla T4"] for fit in evaluated] == [fit[2] for fit in trained]


def test_the_shipped_weights_were_fitted_with_the_shipped_settings() -> None:
    runs = load_checkpoint(None).facts.run
    shipped = load_config()
    assert len(runs) == shipped.members
    for number, facts in enumerate(runs):
        again = dataclasses.replace(RunConfig.from_dict(facts), members=shipped.members)
        assert again == shipped.seeded(number)


def test_records_are_scored_and_those_without_a_time_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.jsonl"
    append_record(path, MeasuredRecord("net:mlp", 2, hardware="Tesla T4", status="oom"))
    assert main(["evaluate", str(path)]) == 1
    assert "holds no record with a time" in capsys.readouterr().err
    append_record(path, MeasuredRecord("net:mlp", 2, hardware="Tesla T4", seconds=0.1))
    assert main(["evaluate", str(path), "--json"]) == 0
    assert '"rows": 1' in capsys.readouterr().out


def test_weights_without_scores_say_how_to_get_some() -> None:
    with pytest.raises(DataError, match="evaluate --fold 0"):
        stored_report({})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("members = 'x'", "wrong value"),
        ("intervals = 3", "wrong value"),
        ("layers = 3", "unknown settings: layers"),
        ("[train\n", "no TOML"),
    ],
)
def test_wrong_settings(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_config(path)


def test_sums_over_a_graph_as_a_baseline_takes_them(rows: Any) -> None:
    table = pooled_features(rows, range(12))
    encoded = rows.store.entries[rows.keys[0]]
    assert table["flops_forward"][0] == pytest.approx((encoded.counts @ encoded.pair("flops"))[0])
    assert table["calls"][0] == encoded.counts.sum()
    assert table["batch_size"].tolist() == [32.0] * 12
    products = [name for name in table if name.startswith("flops_") and "ward" not in name]
    both = table["flops_forward"] + table["flops_backward"]
    assert table[products].sum(axis=1).tolist() == pytest.approx(both.tolist())
    assert (table["time_roofline"] >= table[["time_compute", "time_memory"]].max(axis=1)).all()
    assert len(columns_of(table, "COCMCT")) == len(table.columns)


class Attention(nn.Module):
    def __init__(self, mask: bool, dropout: float) -> None:
        super().__init__()
        self.qkv, self.dropout = nn.Linear(16, 48), dropout
        self.register_buffer("mask", torch.zeros(6, 6) if mask else None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(q, k, v, self.mask, self.dropout)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("mask", [False, True])
def test_attention_is_split_into_what_ran_before_fused_kernels(mask: bool, dropout: float) -> None:
    fused = trace(Attention(mask, dropout), (torch.empty(2, 6, 16),))
    eager = eager_attention(fused)
    assert eager.total_flops == fused.total_flops
    calls = [node.op for node in eager.nodes]
    at = calls.index("softmax")
    before = ["mul", "matmul", *(["add"] if mask else []), "softmax", "dropout", "matmul"]
    assert calls[at - len(before) + 3 : at + 3] == before
    assert [node.index for node in eager.nodes] == list(range(len(eager.nodes)))
    assert all(s.node < n.index for n in eager.nodes for s in n.sources if s.kind == "node")
    dropped = next(node for node in eager.nodes if node.op == "dropout")
    assert dropped.attrs == {"p": dropout, "train": dropout > 0}
    assert eager_attention(eager) is eager
