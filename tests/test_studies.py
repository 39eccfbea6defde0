"""The studies' own arithmetic, without data and without training."""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("optuna")
pytest.importorskip("sklearn")

from experiments.ablation.rows import GRAPH_CHANGES, SAMPLE_CHANGES
from experiments.ablation.variants import VARIANTS
from experiments.ablations import significance
from experiments.layers.records import work_of_layer
from experiments.layers.tables import (
    convolution,
    dense,
    feature_columns,
    product,
    recurrent,
    row_of,
    rowwise,
    with_features,
)
from experiments.shared.ledger import Ledger
from experiments.shared.plots import bars
from prenet_gnn.encoding.encode import Encoded
from prenet_gnn.evaluation.baselines.pooling import FEATURE_SETS
from prenet_gnn.tuning.space import nested

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"
STUDIES = ("compare", "tuning", "ablations", "prenet_layers", "search_architecture", "speed")


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_a_row_and_a_short_form(name):
    readme = (EXPERIMENTS / "README.md").read_text(encoding="utf-8")
    assert f"python -m experiments.{name}" in readme
    module = importlib.import_module(f"experiments.{name}")
    assert f"python -m experiments.{name}" in module.__doc__
    assert "--quick" in help_of(name)


def help_of(name):
    main = importlib.import_module(f"experiments.{name}").main
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
        main(["--help"])
    return text.getvalue()


def test_ledger_goes_on_and_drops_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "a" / "runs.csv"
    ledger = Ledger(path)
    ledger.add({"name": "x, y", "seed": 0, "value": 1.5})
    with path.open("a") as file:
        file.write("z,1")
    again = Ledger(path)
    assert again.has(name="x, y", seed=0)
    assert not again.has(name="z")
    assert again.rows == [{"name": "x, y", "seed": 0, "value": 1.5}]
    again.add({"name": "y", "commit": "12e3456", "value": 1 / 3, "other": 2})
    assert path.read_text().splitlines() == [
        "name,seed,value,other,commit", '"x, y",0,1.5,,', "y,,0.333333,2,12e3456"
    ]  # fmt: skip
    assert Ledger(path).rows[1]["commit"] == "12e3456"


def test_bars_become_a_file(tmp_path):
    pytest.importorskip("matplotlib")
    bars(tmp_path / "b.png", ["one", "two"], {"a": [1, 2], "b": [3, 4]}, title="t", unit="u")
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


# Hand-counted: output size, FLOPs, weights.
@pytest.mark.parametrize(
    ("work", "written", "flops", "weights"),
    [
        (
            convolution({"batch": 2, "in_size": 8, "in_ch": 3, "out_ch": 4, "kernel": 3,
                         "stride": 2, "padding": 1}),
            2 * 4 * 4 * 4, 2 * 2 * 4 * 4 * 4 * 27, 4 * 27,
        ),
        (
            convolution({"batch": 1, "in_size": 7, "in_ch": 2, "out_ch": 4, "kernel": 3,
                         "stride": 2, "padding": "SAME"}),
            4 * 4 * 4, 2 * 4 * 4 * 4 * 18, 4 * 18,
        ),
        (
            convolution({"batch": 1, "in_size": 5, "in_ch": 4, "out_ch": 4, "kernel": 3,
                         "stride": 1, "padding": 1, "groups": 4}),
            5 * 5 * 4, 2 * 5 * 5 * 4 * 9, 4 * 9,
        ),
        (dense({"B": 2, "M": 3, "N": 5, "K": 7}), 2 * 3 * 7, 2 * 2 * 3 * 5 * 7, 35),
        (product({"B": 2, "M": 3, "N": 5, "K": 7}), 2 * 3 * 5, 2 * 2 * 3 * 5 * 7, 0),
        (rowwise({"B": 3, "H": 4}), 12, 0, 0),
        (
            recurrent({"hidden": 5, "batch": 2, "steps": 3, "gates": 4}),
            3 * 2 * 20, 2 * 3 * 2 * 20 * 10, 200,
        ),
    ],
)  # fmt: skip
def test_work_of_layers_by_hand(work, written, flops, weights):
    assert (work.written, work.flops, work.weights) == (written, flops, weights)


def test_attention_layer_counts_projections_and_scores():
    _, flops = work_of_layer(
        "attention", {"dim": 8, "heads": 2}, {"batch": 3, "seq": 5, "image": 1}
    )
    tokens = 3 * 5
    assert flops == 2 * tokens * 8 * 24 + 2 * tokens * 8 * 8 + 2 * 2 * 3 * 5 * 5 * 8


def test_feature_sets_of_layers_are_nested_and_free_of_the_answer():
    rows = [
        row_of(dense({"B": b, "M": 3, "N": 5 * b, "K": 7}), device=d, precision="fp32", seconds=b)
        for b, d in ((1, "Tesla T4"), (2, "Tesla T4"), (3, "Tesla P4"))
    ]
    table = with_features(pd.DataFrame(rows))
    sets = [set(feature_columns(table, name)) for name in FEATURE_SETS]
    assert all(small < large for small, large in itertools.pairwise(sets))
    assert not sets[-1] & {"seconds", "device", "precision"}
    assert (table["time_compute"] * table["device_flops_per_s"]).tolist() == pytest.approx(
        table["flops_forward"].tolist()
    )


def test_significance_finds_a_shift_and_none_in_noise():
    rng = np.random.default_rng(0)
    noise = rng.normal(0.0, 1.0, 40)
    found = significance(noise + 1.0)
    assert found["p_value"] < 0.01
    assert found["low"] < found["difference"] < found["high"]
    assert significance(noise - noise.mean())["p_value"] > 0.9


def test_every_ablation_changes_something_that_exists():
    from prenet_gnn.training.config import SHIPPED, RunConfig
    from prenet_gnn.tuning.settings import base_settings

    base = base_settings(SHIPPED)
    plain = RunConfig.from_dict(base).to_dict()
    for name, variant in VARIANTS.items():
        assert variant.rows in ("", *GRAPH_CHANGES, *SAMPLE_CHANGES)
        changed = RunConfig.from_dict(nested(variant.settings, base)).to_dict()
        differs = changed != plain or bool(variant.rows) or variant.operators
        assert differs == (name != "full")


@pytest.mark.parametrize("name", GRAPH_CHANGES)
def test_changes_of_graphs_leave_the_original_alone(name):
    from prenet_gnn.encoding.fields import NODE

    rng = np.random.default_rng(0)
    encoded = Encoded(
        rng.random((4, NODE.width)), np.arange(4), rng.random((4, 8)),
        np.array([1.0, 2.0, 3.0, 300.0]),
        np.array([[0, 1], [1, 2]]), rng.random((2, 3)), rng.random(6),
    )  # fmt: skip
    before = [array.copy() for array in _arrays(encoded)]
    changed = GRAPH_CHANGES[name](encoded)
    assert all(np.array_equal(a, b) for a, b in zip(before, _arrays(encoded), strict=True))
    assert any(
        a.shape != b.shape or not np.array_equal(a, b)
        for a, b in zip(before, _arrays(changed), strict=True)
    )


def _arrays(encoded):
    return [getattr(encoded, name) for name in encoded.__dataclass_fields__]


def test_a_result_file_makes_no_commit_dirty(tmp_path):
    import subprocess

    from experiments.shared.results import git_commit

    code = tmp_path / "experiments" / "a.py"
    result = code.with_name("results") / "a.json"
    result.parent.mkdir(parents=True)
    result.write_text("1")
    code.write_text("")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    commit = git_commit(tmp_path)
    result.write_text("2")
    assert git_commit(tmp_path) == commit
    code.write_text("2")
    assert git_commit(tmp_path) == f"{commit}-dirty"


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.py")), ids=lambda path: path.stem)
def test_a_file_at_the_top_is_a_command_with_a_row_in_the_readme(path):
    if path.stem == "__init__":
        return
    assert f"python -m experiments.{path.stem}" in help_of(path.stem)
    readme = (EXPERIMENTS / "README.md").read_text(encoding="utf-8")
    assert f"python -m experiments.{path.stem}" in readme


def test_a_quick_run_leaves_nothing_beside_the_results():
    from experiments.shared.results import RESULTS, folder_of

    assert folder_of(quick=False) == RESULTS
    assert not folder_of(quick=True).is_relative_to(EXPERIMENTS)
