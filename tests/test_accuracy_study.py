"""Protocols, tables over seeds and provenance of the accuracy study, without training."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from experiments import ensemble, search_architecture
from experiments.shared import protocols
from experiments.shared import results as provenance
from experiments.shared.markdown import DOCS, has_table
from experiments.writing import accuracy as tables
from experiments.writing import pages
from prenet_gnn.data.keys import GraphKey
from prenet_gnn.encoding.encode import encode
from prenet_gnn.encoding.template import build_template
from prenet_gnn.errors import ConfigError, DataError
from prenet_gnn.training.store import EntryKey, Store
from tracing import trace

CARDS = ("Tesla V100-PCIE-32GB", "Tesla V100-SXM2-16GB", "NVIDIA GeForce RTX 3090")


def table(*models):
    """A row of every model on every card; timm's rows are on the last card only."""
    rows = [
        {"library": library, "model": model, "gpu": card, "mode": "infer"}
        for library, model in models
        for card in (CARDS[-1:] if library == "timm" else CARDS)
    ]
    return pd.DataFrame(rows)


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 32, 2, 2)
        self.inner = nn.MultiheadAttention(32, 2, batch_first=True)
        self.mlp = nn.Linear(32, 32)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        return self.mlp(self.inner(x, x, x, need_weights=False)[0])


def convolves():
    layers = [nn.Conv2d(3 if i == 0 else 8, 8, 3, padding=1) for i in range(5)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))


def mixes_without_attention():
    return nn.Sequential(nn.Conv2d(3, 32, 8, 8), nn.Flatten(2), nn.Linear(16, 16))


@pytest.fixture(scope="module")
def mixes():
    graphs = {}
    for name, model in (
        ("cnn", convolves()), ("transformer", Attends()), ("mixed", mixes_without_attention())
    ):  # fmt: skip
        graph = trace(model.eval(), (torch.zeros(2, 3, 32, 32),))
        graphs[name] = encode(build_template(graph, "fp32"), 2, "fp32")
    return graphs


def made_up_rows(mixes):
    """Families of three kinds, the graph of each standing for all its models."""
    kinds = {"resnet18": "cnn", "vgg11": "cnn", "vit_b_16": "transformer", "bert": "transformer",
             "coat": "mixed"}  # fmt: skip
    frame = table(*(("torchvision", name) for name in kinds))
    keys = [EntryKey(GraphKey("torchvision", model), "fp32", 2) for model in frame["model"]]
    store = Store()
    for key in keys:
        store.entries[key] = mixes[kinds[key.graph.model]]
    return SimpleNamespace(frame=frame, keys=keys, store=store)


def test_the_kind_of_a_network_follows_from_its_graph(mixes):
    assert {name: protocols.mix_of(graph).kind for name, graph in mixes.items()} == {
        name: name for name in mixes
    }


def test_convolutional_families_teach_and_transformers_test(mixes):
    rows = made_up_rows(mixes)
    fold = protocols.protocol(rows, "cnn-to-transformer")
    model = rows.frame["model"].to_numpy()
    assert set(model[fold.train]) == {"resnet18", "vgg11"}
    assert set(model[fold.test["cnn-to-transformer"]]) == {"vit_b_16", "bert"}


def test_families_that_both_libraries_have_take_no_part_in_the_test():
    frame = table(("torchvision", "resnet18"), ("timm", "resnet18"), ("timm", "resnet26d"),
                  ("timm", "convit_base"))  # fmt: skip
    fold = protocols.protocol(SimpleNamespace(frame=frame), "torchvision-to-timm")
    assert set(frame["library"].to_numpy()[fold.train]) == {"torchvision"}
    test = np.concatenate(list(fold.test.values()))
    assert set(frame["model"].to_numpy()[test]) == {"convit_base"}
    assert list(fold.test) == ["torchvision-to-timm"]


def test_a_device_is_left_out_with_every_card_of_its_chip():
    frame = table(("torchvision", "resnet18"), ("torchvision", "vgg11"))
    fold = protocols.protocol(SimpleNamespace(frame=frame), protocols.LEAVE_OUT, CARDS[0])
    assert fold.devices == CARDS[:2]
    assert set(frame["gpu"].to_numpy()[fold.train]) == {CARDS[2]}
    with pytest.raises(ConfigError, match="no rows were measured on 'Tesla T4'"):
        protocols.protocol(SimpleNamespace(frame=frame), protocols.LEAVE_OUT, "Tesla T4")
    with pytest.raises(ConfigError, match="Allowed: torchvision-to-timm"):
        protocols.protocol(SimpleNamespace(frame=frame), "other")


@pytest.mark.parametrize("name", ["torchvision-to-timm", protocols.LEAVE_OUT])
def test_groups_of_the_measured_data_stay_apart(data_dir, name):
    from prenet_gnn.data import read_measurements, training_rows
    from prenet_gnn.data.families import families
    from prenet_gnn.data.splits import chip_name

    frame = training_rows(read_measurements(data_dir))
    fold = protocols.protocol(SimpleNamespace(frame=frame), name, "Tesla T4")
    test = np.concatenate(list(fold.test.values()))
    values = families(frame).to_numpy()
    if name == protocols.LEAVE_OUT:
        values = np.array([chip_name(gpu) for gpu in frame["gpu"]])
    assert len(test)
    assert not set(values[fold.train]) & set(values[test])


def texts_of(folder):
    return {name: text for name, _, text in pages.study_tables(folder)}


def result(fold, seed, mape, rows=10):
    scores = dict.fromkeys(tables.AVERAGED, 0.5) | {"mape": mape, "rows": rows}
    part = {"rows": rows, "half_width": mape}
    return {
        "fold": fold, "seed": seed, "versions": {"torch": "2"},
        "scores": [{"split": s, "predictor": p, **scores}
                   for s in tables.SPLITS for p in tables.PREDICTORS],
        "details": {s: {"intervals": {"train": part, "infer": part}} for s in tables.SPLITS},
    }  # fmt: skip


def test_seeds_of_a_fold_are_averaged_before_folds():
    results = [result(0, 0, 0.1), result(0, 1, 0.3), result(1, 0, 0.4)]
    row = tables.merged(results)[0]
    assert row["rows"] == 20
    assert row["mape"] == pytest.approx(0.3)
    assert row["mape_sd"] == pytest.approx(np.std([0.1, 0.3], ddof=1))
    assert "30.0%** ± 14.1%" in tables.accuracy(results)
    assert "folds 0, 1 of 5, seed 0, 1" in tables.accuracy(results)
    assert tables.intervals(results)["known_device|train"] == pytest.approx(0.3)


def test_one_seed_has_no_spread():
    text = tables.accuracy([result(0, 0, 0.1), result(1, 0, 0.2)])
    assert "±" not in text
    assert "**15.0%**" in text


def test_tables_of_protocols_show_what_was_run(tmp_path):
    assert tables.transfer(tmp_path) == ""
    one = result(0, 0, 0.25) | {"protocol": "torchvision-to-timm"}
    one["details"] = {"random": {}}
    for seed in (0, 1):
        path = tmp_path / f"accuracy-torchvision-to-timm-seed{seed}.json"
        path.write_text(json.dumps(one | {"seed": seed}))
    assert "| random | 10 | 2 | **25.0%** ± 0.0% |" in tables.transfer(tmp_path)


def test_errors_of_held_out_devices_are_parted_into_bias_and_spread():
    def fold(number, seed, *rows):
        keys = ("gpu", "rows", "mape", "bias", "spread")
        listed = [dict(zip(keys, row, strict=True)) for row in rows]
        details = {"unseen-device": {"by_device": listed}}
        return {"fold": number, "seed": seed, "details": details}

    text = tables.held_out_devices(
        [
            fold(0, 0, ("A", 10, 0.2, 0.1, 0.0), ("A", 30, 0.4, 0.5, 0.0)),
            fold(0, 1, ("A", 10, 0.4, 0.1, 0.0), ("A", 30, 0.4, 0.5, 0.0)),
            fold(1, 0, ("B", 8, 0.9, -1.0, 0.3)),
        ]
    )
    lines = text.splitlines()[2:]
    assert lines == ["| B | 8 | 90.0% | -1.00 | 0.30 |", "| A | 40 | 37.5% | +0.40 | 0.17 |"]


def test_the_worst_groups_are_means_over_seeds():
    def seed(number, mape):
        family = {"family": "vgg", "rows": 10, "mape": mape, "bias": mape - 0.1, "spread": 0.2}
        device = family | {"gpu": "Tesla T4", "mode": "train", "precision": "fp32"}
        details = {"unseen-architecture": {"by_family": [family]},
                   "unseen-device": {"by_device": [device]}}  # fmt: skip
        return {"fold": 0, "seed": number, "details": details}

    found = tables.worst([seed(0, 0.1), seed(1, 0.3)])
    assert [text.splitlines()[-1] for text in found.split("\n\n")] == [
        "| vgg | 10 | 20.0% | +0.10 | 0.20 |",
        "| Tesla T4 train fp32 | 10 | 20.0% | +0.10 | 0.20 |",
    ]


def test_tables_of_the_smaller_studies_show_what_was_found(tmp_path):
    assert texts_of(tmp_path) == {}
    made = {"command": "python -m x", "commit": "abc", "versions": {"torch": "2"}}
    side = {"rows": 5, "mape": 0.3, "median": 0.2, "over_20": 0.5}
    separated = {"split": "all", "warning": "graph", "share": 0.25, "auroc": None,
                 "with": side, "without": side | {"median": 0.1}}  # fmt: skip
    part = separated | {"split": "random"}
    covered = {"split": "random", "zone": "all", "rows": 9, "coverage": 0.9, "half_width": 0.31}
    near = covered | {"zone": "near"}
    results = {
        "outside": {"separation": [separated, part], "coverage": [covered, near]},
        "breakdown": {"means": [{"mode": "train", "by": "module", "models": 2, "spearman": 0.9,
                                 "mean_difference": 0.012, "misplaced": 0.1,
                                 "costliest_found": 1.0}]},
        "calibration-fold1": {"mean": [{"count": 10, "calibrated": 14.2, "spread": 2.9,
                                        "rescaled": 23.0}]},
        "memory": {"tools": {"kitsune": "1"},
                   "verdicts": [{"group": "ours", "verdicts": 4, "fits_right": 0.5,
                                 "one_up_right": 1.0}],
                   "peaks": [{"source": "s", "predictor": "ours", "peaks": 2, "mape": 0.1,
                              "bias": -0.1}]},
    }  # fmt: skip
    for name, values in results.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(made | values))
    texts = texts_of(tmp_path)
    assert texts["outside"].count("| network |") == 1
    assert "20.0% / 30.0% / 50% | 10.0%" in texts["outside"]
    assert texts["outside"].count("| random | 9 | ±0.31 | 90.0% |") == 1
    assert "| 1.2 points | 10.0% | 100% |" in texts["breakdown"]
    assert "| ours | 4 | 50.0% | 100.0% |" in texts["memory"]
    assert "| 10 | 14.2% ± 2.9 | 23.0% |" in texts["calibration-fold1"]


def test_tables_of_the_larger_studies_show_what_was_found(tmp_path):
    made = {
        "command": "python -m experiments.compare --fold 1",
        "commit": "abc",
        "versions": {"torch": "2"},
    }
    results = {
        "tuning": {
            "trials": {"complete": 40, "pruned": 20},
            "best": {"trial": 7, "validation_mape": 0.21, "train.learning_rate": 0.00312},
            "importances": {"model.layers": 0.1, "train.learning_rate": 0.62},
            "ranking on twice the rows and epochs": {"settings": 5, "spearman": 0.9},
        },
        "compare-fold1": {"mape": {"mean": {"random": 2.5}, "graph network": {"random": 0.07},
                                   "mlp CO": {"random": 0.3}, "mlp COCM": {"random": 0.2}}},
        "layers": {
            "best reduction": {"model": "mlp", "family": "dense", "percent": 40.2},
            "paper": {"best reduction": {"model": "x", "family": "attention", "percent": 72.6}},
            "family and model pairs whose RMSE falls": "1 of 2",
            "end to end": {
                "runs": 3,
                "mean error in percent": {"gnn_error_percent": 12.4},
                "runs where our iterations alone exceed the paper's epoch": 1,
            },
        },
    }  # fmt: skip
    for name, values in results.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(made | values))
    texts = texts_of(tmp_path)
    lines = texts["tuning"].splitlines()
    assert "40 complete, 20 pruned. Best: trial 7 with a validation error of 21.0%" in lines[0]
    assert lines[4] == "| `train.learning_rate` | 62% | 0.00312 |"
    assert "| graph network | 7.0% |" in texts["compare-fold1"]
    assert "| mlp, best set | 20.0% |" in texts["compare-fold1"]
    assert "python -m experiments.compare --fold 1" in texts["compare-fold1"]
    assert "in the paper 72.6% (x, attention)" in texts["layers"]
    assert "gnn 12%" in texts["layers"]


def test_the_search_says_what_it_found():
    best = {"value": 3.1, "width": 256, "batch_size": 8, "trials": 9, "pruned_for_memory": 2}
    fast = {"trials_per_second": 40.0, "trials_per_cpu_second": 50.0,
            "best": best | {"device": "L4"}}  # fmt: skip
    text = search_architecture.table(
        {"hours": 24.0, "hardware": "T", "best": best, "fast_loop": fast, "command": "c",
         "commit": "abc", "versions": {"torch": "2"}}
    )  # fmt: skip
    assert "width 256, batch size 8, device L4" in text


@pytest.mark.parametrize("name", pages.STUDIES)
def test_every_study_has_a_place_for_its_table(name):
    assert has_table(name, DOCS / pages.STUDIES[name][1])


def test_a_table_without_a_place_in_its_page_is_said(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- table:one -->\nold\n<!-- /table:one -->\nb\n")
    pages.put("one", page, "| new |")
    pages.put("two", page, "| other |")
    assert page.read_text() == "a\n<!-- table:one -->\n| new |\n<!-- /table:one -->\nb\n"
    assert "table 'two' is not written: page.md has no place for it" in capsys.readouterr().out


def test_every_result_says_which_data_it_was_made_with(data_dir, monkeypatch):
    monkeypatch.setenv("PRENET_DATA", str(data_dir))
    provenance.data_hashes.cache_clear()
    facts = provenance.provenance("a command", seed=3)
    assert facts["seed"] == 3
    assert len(facts["data_sha256"]["measurements.csv.gz"]) == 64
    manifest = (data_dir / "MANIFEST.csv").read_text(encoding="utf-8")
    assert all(f"{name},{digest}" in manifest for name, digest in facts["data_sha256"].items())


def test_without_data_there_is_no_hash(tmp_path, monkeypatch):
    monkeypatch.setattr("prenet_gnn.data.tables.find_data_dir", missing)
    provenance.data_hashes.cache_clear()
    assert provenance.data_hashes() == {}
    provenance.data_hashes.cache_clear()


def missing(_):
    raise DataError("there is no data.")


def test_the_mean_of_networks_is_geometric_and_scored_beside_each_of_them(tmp_path):
    true = np.array([1.0, 2.0, 4.0])
    found = ensemble.score(true, [true * 1.25, true * 0.8])
    assert found["mape"] == pytest.approx(0, abs=1e-12)
    assert found["mape_of_one"] == pytest.approx((0.25 + 0.2) / 2)
    assert found["networks"] == 2
    for fold, seed in ((0, 0), (1, 0), (1, 1)):
        folder = tmp_path / f"accuracy-fold{fold}-seed{seed}"
        folder.mkdir()
        np.savez(folder / ensemble.PREDICTED, random=true)
    assert {fold: len(paths) for fold, paths in ensemble.found_runs(tmp_path).items()} == {1: 2}
    lines = [{"fold": 0, "split": "random", **found}, {"fold": 1, "split": "random", **found}]
    assert ensemble.merged(lines)[0]["rows"] == 6
    made = {"command": "c", "commit": "abc", "versions": {"torch": "2"}}
    text = ensemble.table({"splits": ensemble.merged(lines), **made})
    assert "| random | 6 | 2 | 22.5% ± 3.5% | **0.0%**" in text
