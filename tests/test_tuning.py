"""Tuning: the space, the sample, studies that are stopped or killed, and what they write."""

from __future__ import annotations

import tomllib

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

optuna = pytest.importorskip("optuna")

from prenet_gnn.data.keys import GraphKey  # noqa: E402
from prenet_gnn.encoding.encode import encode  # noqa: E402
from prenet_gnn.encoding.template import build_template  # noqa: E402
from prenet_gnn.errors import ConfigError, PreNetError  # noqa: E402
from prenet_gnn.training.config import RunConfig, load_config  # noqa: E402
from prenet_gnn.training.rows import load_rows  # noqa: E402
from prenet_gnn.training.store import EntryKey, Store  # noqa: E402
from prenet_gnn.tuning import trials  # noqa: E402
from prenet_gnn.tuning.objective import make_objective  # noqa: E402
from prenet_gnn.tuning.proxy import PART, VALIDATED, read_proxy, write_proxy  # noqa: E402
from prenet_gnn.tuning.report import BEST, REPORT, TRIALS, to_toml, write_report  # noqa: E402
from prenet_gnn.tuning.run import run_tuning  # noqa: E402
from prenet_gnn.tuning.settings import TuneConfig, base_settings  # noqa: E402
from prenet_gnn.tuning.space import SPACE, draw, nested  # noqa: E402
from prenet_gnn.tuning.storage import open_study, storage_address  # noqa: E402
from prenet_gnn.tuning.worker import PROXY  # noqa: E402

DEVICES = ("Tesla T4", "NVIDIA GeForce RTX 3090", "Tesla P100-PCIE-16GB")


def sample(folder, framework="torch-2.4.0", *, single=False):
    """A sample of nine made-up rows: three networks on three devices."""
    store, keys, table = Store(), [], []
    for width in (8, 16, 32):
        net = nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.Conv2d(width, 8, 3))
        graph = build_template(_traced(net), "fp32")
        key = GraphKey("torchvision", f"net{width}")
        for each in {False, single}:
            store.entries[EntryKey(key, "fp32", 4, each)] = encode(graph, 4, "fp32")
        for number, device in enumerate(DEVICES):
            keys.append(key)
            table.append(
                {
                    "gpu": device, "mode": "infer", "precision": "fp32", "library": "torchvision",
                    "optimizer": "none", "channels_last": False, "compiled": False,
                    "cudnn_benchmark": True, "framework": framework, "batch_size": 4,
                    "timed": "forward", "model": key.model, "step_s": 1e-4 * width * (1 + number),
                    "forward_s": np.nan, "backward_s": np.nan,
                }
            )  # fmt: skip
    rows = load_rows(pd.DataFrame(table), keys, store)
    parts = {"train": np.arange(5), VALIDATED[0]: np.array([5, 6]), VALIDATED[1]: np.array([7, 8])}
    write_proxy(rows, parts, folder)
    return rows


def _traced(net):
    from tracing import trace

    return trace(net.eval(), (torch.zeros(4, 3, 16, 16),))


def test_every_searched_setting_exists_and_every_draw_is_a_configuration():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    for _ in range(20):
        settings = draw(study.ask())
        assert settings.keys() == SPACE.keys()
        config = RunConfig.from_dict(nested(settings)).to_dict()
        for name, value in settings.items():
            found = config
            for part in name.split("."):
                found = found[part]
            assert found == value


def test_settings_survive_the_way_through_toml(tmp_path):
    base = base_settings(None, ["members=3", "train.epochs=7"])
    path = tmp_path / "best.toml"
    path.write_text(to_toml(nested({"train.learning_rate": 1e-3, "model.encoder.layers": 1}, base)))
    config = load_config(path)
    assert (config.members, config.train.epochs) == (3, 7)
    assert (config.train.learning_rate, config.model.encoder.layers) == (1e-3, 1)
    assert tomllib.loads(to_toml({"a": 3e10, "b": 'x"y', "c": True, "d": 2.0}))["d"] == 2.0


def test_sample_round_trip(tmp_path):
    rows = sample(tmp_path)
    proxy = read_proxy(tmp_path)
    assert len(proxy.train) == 5
    assert proxy.rows.frame[PART].iloc[proxy.validation].tolist() == [
        *[VALIDATED[0]] * 2, *[VALIDATED[1]] * 2,
    ]  # fmt: skip
    assert proxy.rows.seconds.tolist() == rows.seconds.tolist()
    assert proxy.rows.keys == rows.keys


def test_rows_that_share_a_graph_of_older_attention_are_found_again(tmp_path):
    rows = sample(tmp_path, "torch-2.9.0", single=True)
    assert not any(key.single_attention for key in rows.keys)
    assert read_proxy(tmp_path).rows.keys == rows.keys


def toy(trial):
    x, y = trial.suggest_float("x", -1, 1), trial.suggest_int("y", 0, 3)
    trial.report(x * x, 0)
    return x * x + y


def settings_of(study):
    return [trial.params for trial in study.trials]


def test_a_study_that_goes_on_draws_what_it_would_have_drawn(tmp_path):
    whole = open_study(str(tmp_path / "whole"))
    trials.run_trials(whole, toy, 14, seed=1)
    for count in (5, 14):
        cut = open_study(str(tmp_path / "cut"))
        trials.run_trials(cut, toy, count, seed=1)
        assert len(cut.trials) == count
    assert settings_of(cut) == settings_of(whole)
    assert len({str(params) for params in settings_of(cut)}) == 14
    other = open_study(str(tmp_path / "other"))
    trials.run_trials(other, toy, 3, seed=2)
    assert settings_of(other) != settings_of(whole)[:3]


def test_killed_workers_lose_no_finished_trial(tmp_path, study_with_killed_workers, check_study):
    study, log = study_with_killed_workers(str(tmp_path / "study"), 14)
    check_study(study, log, 14)


def test_trial_of_a_dead_process_is_queued_again_but_not_for_ever(tmp_path):
    study = open_study(str(tmp_path / "study"))
    dead = trials.worker_name().rsplit("/", 1)[0] + "/1"
    for _ in range(4):
        trial = study.ask()
        trial.set_user_attr(trials.WORKER, dead)
        trial.suggest_float("x", 0, 1)
        assert trials.reclaim(study) == 1
    first = study.trials[0].params["x"]
    assert [t.user_attrs.get(trials.RETRIES, 0) for t in study.trials] == [0, 1, 2, 0, 1]
    assert [t.params["x"] == first for t in study.trials[:4]] == [True, True, True, False]


def test_a_running_trial_is_left_alone(tmp_path):
    study = open_study(str(tmp_path / "study"))
    study.ask().set_user_attr(trials.WORKER, trials.worker_name())
    study.ask()  # not signed yet
    elsewhere = study.ask()
    elsewhere.set_user_attr(trials.WORKER, "another-machine/12/34")
    assert trials.reclaim(study) == 0
    assert trials.reclaim(study, stale_after_s=0.0) == 1


def test_a_small_study_from_end_to_end(tmp_path):
    sample(tmp_path / PROXY)
    config = TuneConfig(base=base_settings(None, ["train.epochs=9"]), epochs=1, trials=2)
    best = run_tuning(tmp_path, config, progress=False)
    assert best.values[0] > 0
    found = load_config(tmp_path / BEST)
    assert found.train.epochs == 9
    assert found.model.encoder.hidden == best.params["model.encoder.hidden"]
    assert len((tmp_path / TRIALS).read_text().splitlines()) == 3
    assert "plotly" in (tmp_path / REPORT).read_text().lower()
    with pytest.raises(ConfigError, match="another epochs"):
        run_tuning(tmp_path, TuneConfig(base=config.base, epochs=3))


def test_two_objectives(tmp_path):
    sample(tmp_path)
    study = open_study(str(tmp_path / "study"), ("minimize", "minimize"))
    objective = make_objective(read_proxy(tmp_path), {}, 1, with_latency=True)
    trials.run_trials(study, objective, 1)
    error, latency = study.trials[0].values
    assert error > 0
    assert latency > 0
    assert write_report(study, tmp_path, {}).number == 0


def test_errors_of_users_are_one_line(tmp_path):
    with pytest.raises(ConfigError, match="Allowed: a path of a journal"):
        storage_address("redis://somewhere", tmp_path)
    with pytest.raises(ConfigError, match="Allowed: median"):
        TuneConfig(pruner="best")
    with pytest.raises(ConfigError, match="at least 1"):
        TuneConfig(trials=0)
    study = open_study(str(tmp_path / "study"))
    with pytest.raises(PreNetError, match="no trial"):
        write_report(study, tmp_path, {})
    with pytest.raises(ConfigError, match="objectives"):
        open_study(str(tmp_path / "study"), ("minimize", "minimize"))
    assert storage_address("postgresql://me@host/db", tmp_path) == "postgresql+psycopg://me@host/db"
