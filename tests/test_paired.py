"""The copy of the network for known devices: what it changes, and how it is trained and kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fits import fit_rows
from networks import config, graph_of, sample
from test_training import made_up_rows

from prenet_gnn.cli import main
from prenet_gnn.encoding.batch import collate
from prenet_gnn.encoding.fields import OPERATORS
from prenet_gnn.errors import ConfigError
from prenet_gnn.network.checkpoint import load_checkpoint
from prenet_gnn.network.latents import LatentSizes
from prenet_gnn.network.paired import PairedGNN, build_network
from prenet_gnn.training import prepare, run
from prenet_gnn.training.config import RunConfig, load_config
from prenet_gnn.training.fit import Material, Watch, predict_rows
from prenet_gnn.training.rows import rare_operators
from prenet_gnn.training.train_config import TrainConfig


def test_what_a_known_setting_learns_leaves_new_devices_alone() -> None:
    pair = build_network(config(settings=3), LatentSizes(2, 2)).eval()
    assert isinstance(pair, PairedGNN)
    new = sample(graph_of())
    known = replace(new, latents=(1, 1, 0))
    half_known = replace(new, latents=(1, 0, 0))
    with torch.no_grad():
        pair.known.latents.device_setting[1] = 1.0
        pair.known.head.after_run[-1].weight.normal_(std=0.1)
        times = pair(collate([new, known, half_known]))
        alone = pair.general(collate([new, known, half_known]))
        tuned = pair.known(collate([known]))
    assert torch.allclose(times.total[[0, 2]], alone.total[[0, 2]])
    assert not torch.allclose(tuned.total, alone.total[1:2], rtol=1e-3)
    assert torch.allclose(times.total[1:2], (alone.total[1:2] * tuned.total).sqrt())
    calls = len(known.encoded.operators)
    own = slice(calls, 2 * calls)
    assert torch.allclose(times.node[own], (alone.node[own] + tuned.node) / 2)
    assert torch.allclose(times.node[:calls], alone.node[:calls])


def test_a_copy_is_tuned_on_from_the_network_it_belongs_to(tmp_path: Path) -> None:
    rows = made_up_rows()
    everything = rows.latents(range(len(rows)))
    settings = RunConfig.from_dict(
        {
            "model": {"encoder": {"hidden": 16}, "latents": {"settings": 2}},
            "train": {"epochs": 3, "rows_per_epoch": 0, "operators_per_step": 0},
            "known": {"epochs": 2, "learning_rate": 1e-4},
        }
    )
    said: list[int] = []

    def tuned(folder: Path | None = None) -> Any:
        said.clear()
        material = Material(rows, torch.arange(len(rows)).numpy())
        watch = Watch(folder, lambda epoch, figures: said.append(epoch))
        return run.fit_member(material, settings.seeded(5), watch)

    fitted = tuned(tmp_path)
    assert said == [0, 1, 2, 0, 1]
    assert fitted.latents == everything
    general, known = fitted.model.general.state_dict(), fitted.model.known.state_dict()
    assert set(known) - set(general) == {
        "latents.device_setting", "latents.host_setting", "head.setting_film.weight",
    }  # fmt: skip
    assert float(known["latents.device_setting"].abs().max()) > 0
    # a small rate leaves it near where it began
    for name, value in general.items():
        assert torch.allclose(value, known[name], atol=0.02), name
    assert tuned(tmp_path).history == fitted.history
    assert said == []
    again = tuned()
    assert predict_rows(again, rows, [0, 1]).tolist() == predict_rows(fitted, rows, [0, 1]).tolist()


def test_weights_of_pairs_are_kept_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = made_up_rows()
    rows = replace(rows, frame=rows.frame.assign(source="made up"))
    monkeypatch.setattr(prepare, "prepare_rows", lambda data, **_: rows)
    monkeypatch.setattr(prepare, "prepare_operators", lambda data: rows)
    changes = (
        "train.epochs=1", "train.rows_per_epoch=0", "train.operators_per_step=4",
        "model.encoder.hidden=16", "model.latents.settings=2", "known.epochs=2", "members=1",
    )  # fmt: skip
    words = [part for change in changes for part in ("--set", change)]
    assert main(["train", "-o", str(tmp_path), *words]) == 0
    made = load_checkpoint(tmp_path)
    assert made.facts.run["known"] == {**load_config().known, "epochs": 2}
    (pair,) = made.models
    assert isinstance(pair, PairedGNN)
    kept = torch.load(tmp_path / "member-0" / "known" / "last.ckpt", weights_only=True)["model"]
    assert all(torch.equal(kept[name], value) for name, value in pair.known.state_dict().items())


@pytest.mark.parametrize("given", [{"seed": 1}, {"epoch": 1}, {"epochs": "many"}, 3])
def test_wrong_settings_of_the_copy_are_refused(given: Any) -> None:
    with pytest.raises(ConfigError):
        RunConfig.from_dict({"known": given})


def test_names_that_few_families_use_are_hidden_once_a_network_is_fitted() -> None:
    rows = made_up_rows()
    everything = torch.arange(len(rows)).numpy()
    relu, conv = OPERATORS.index("relu") + 1, OPERATORS.index("conv2d") + 1
    # four networks, each a family of its own
    assert not {relu, conv} & set(rare_operators(rows, everything, 4).tolist())
    assert {relu, conv} <= set(rare_operators(rows, everything, 5).tolist())
    assert 0 not in rare_operators(rows, everything, 5)
    settings = TrainConfig(epochs=2, rows_per_epoch=0, operators_per_step=0, fewest_families=5)
    model = config(operator_dropout=0.0)
    network = fit_rows(rows, everything, everything[:0], model, settings).model
    assert bool(network.encoder.hidden_names[relu])
    assert not bool(network.encoder.hidden_names[0])
    data = collate([rows.sample(0, rows.latents(everything))])
    with torch.no_grad():
        seen = network(data).total
        data = replace(data, operator=torch.zeros_like(data.operator))
        assert torch.equal(network(data).total, seen)
        network.encoder.hidden_names[:] = False
        data = collate([rows.sample(0, rows.latents(everything))])
        assert not torch.equal(network(data).total, seen)
    free = fit_rows(
        rows, everything, everything[:0], model, replace(settings, fewest_families=0)
    ).model
    assert not bool(free.encoder.hidden_names.any())
