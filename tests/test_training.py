"""The training loop on rows made up from a known law."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from fits import fit_rows
from networks import config
from torch import nn

from prenet_gnn.data.keys import GraphKey
from prenet_gnn.encoding.encode import encode
from prenet_gnn.encoding.template import build_template
from prenet_gnn.errors import ConfigError
from prenet_gnn.training.config import load_config
from prenet_gnn.training.drawing import Clusters
from prenet_gnn.training.fit import predict_rows
from prenet_gnn.training.metrics import mape
from prenet_gnn.training.optimizer import Muon
from prenet_gnn.training.rows import load_rows
from prenet_gnn.training.store import EntryKey, Store
from prenet_gnn.training.train_config import TrainConfig
from tracing import trace

DEVICES = {"Tesla T4": 1.0, "NVIDIA GeForce RTX 3090": 0.4, "Tesla P100-PCIE-16GB": 1.5}
EMPTY = np.zeros(0, dtype=np.int64)
# nothing random in a step: processes hide other names than one process would
SMALL = config(layers=1, dropout=0.0, operator_dropout=0.0)


def net(width, depth):
    layers = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def made_up_rows():
    """Twelve rows: four networks on three devices."""
    store, keys, table = Store(), [], []
    for width, depth in ((32, 2), (64, 4), (96, 3), (48, 8)):
        graph = trace(net(width, depth), (torch.zeros(32, 3, 32, 32),))
        key = GraphKey("timm", f"net_{width}_{depth}")
        store.entries[EntryKey(key, "fp32", 32)] = encode(build_template(graph, "fp32"), 32, "fp32")
        for device, factor in DEVICES.items():
            keys.append(key)
            table.append(
                {
                    "gpu": device, "mode": "train", "precision": "fp32", "library": "timm",
                    "optimizer": "sgd", "channels_last": False, "compiled": False,
                    "cudnn_benchmark": True, "framework": "torch-2.4.0", "batch_size": 32,
                    "timed": "zero_grad+forward+loss+backward+optimizer", "model": key.model,
                    "step_s": factor * (0.004 + 3e-12 * graph.total_flops),
                    "forward_s": np.nan, "backward_s": np.nan,
                }
            )  # fmt: skip
    return load_rows(pd.DataFrame(table), keys, store)


@pytest.fixture(scope="module")
def rows():
    return made_up_rows()


def test_what_one_chip_alone_tells_of_a_framework_is_the_chips_own(rows):
    def frameworks(*pairs):
        chosen = rows.only(np.arange(len(pairs)))
        chosen.frame["gpu"] = [gpu for gpu, _ in pairs]
        chosen.workloads = [
            replace(workload, framework=f"torch-{version}")
            for workload, (_, version) in zip(chosen.workloads, pairs, strict=True)
        ]
        found = chosen.latents(range(len(chosen)))
        assert len(found.hosts) == len(set(pairs))
        return [name.split("|")[0] for name in found.frameworks]

    t4, v100 = "Tesla T4", "Tesla V100-PCIE-32GB"
    assert frameworks((t4, "2.1"), (v100, "2.4")) == []
    assert frameworks((t4, "2.4"), (v100, "2.4")) == ["torch-2.4"]
    # versions on one chip can be compared, and cards of one chip are one
    assert frameworks((t4, "2.1"), (t4, "2.4"), (v100, "2.9")) == ["torch-2.1", "torch-2.4"]
    assert frameworks((v100, "2.4"), ("Tesla V100-SXM2-16GB", "2.4")) == []


def test_twelve_rows_are_memorised(rows):
    config = TrainConfig(
        epochs=300, rows_per_epoch=0, batch_size=12, latent_dropout=0.0, learning_rate=0.01
    )
    everything = np.arange(len(rows))
    fitted = fit_rows(rows, everything, EMPTY, SMALL, config)
    assert mape(rows.seconds, predict_rows(fitted, rows, everything)) < 0.05


def test_same_seed_same_weights_and_another_seed_others(rows):
    everything = np.arange(len(rows))
    runs = [
        fit_rows(rows, everything, EMPTY, SMALL, TrainConfig(epochs=2, rows_per_epoch=0, seed=seed))
        for seed in (1, 1, 2)
    ]
    first, second, third = (dict(run.model.state_dict()) for run in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], third[name]) for name in first)


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(rows, tmp_path):
    everything = np.arange(len(rows))
    config = TrainConfig(epochs=4, rows_per_epoch=0, batch_size=6)
    whole = fit_rows(rows, everything, EMPTY, SMALL, config, folder=tmp_path / "whole")

    class Stop(Exception):
        pass

    def stop(epoch, figures):
        if epoch == 1:
            raise Stop

    with pytest.raises(Stop):
        fit_rows(rows, everything, EMPTY, SMALL, config, folder=tmp_path / "cut", report=stop)
    resumed = fit_rows(rows, everything, EMPTY, SMALL, config, folder=tmp_path / "cut")
    assert [h["epoch"] for h in resumed.history] == [h["epoch"] for h in whole.history]
    assert np.isfinite(predict_rows(resumed, rows, everything)).all()


# What every process of the test below runs.
SHARED = TrainConfig(epochs=3, rows_per_epoch=0, batch_size=5, operators_per_step=4)
WORKER = """
import sys
from dataclasses import replace
from pathlib import Path
import numpy as np
from test_training import EMPTY, SHARED, SMALL, fit_rows, made_up_rows, save

rows, folder = made_up_rows(), Path(sys.argv[1])
save(fit_rows(rows, np.arange(12), EMPTY, SMALL, SHARED, operators=rows, folder=folder), folder)
"""


def save(fitted, folder):
    """Writes what a process has found, one file for each."""
    import torch.distributed

    weights = {name: value.tolist() for name, value in fitted.model.state_dict().items()}
    text = json.dumps({"history": fitted.history, "weights": weights})
    (Path(folder) / f"rank-{torch.distributed.get_rank()}.json").write_text(text)


def test_two_processes_learn_what_one_learns(rows, tmp_path):
    from prenet_gnn.training.parallel import processes

    assert processes() == 1
    one = fit_rows(rows, np.arange(len(rows)), EMPTY, SMALL, SHARED, operators=rows)
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    places = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    subprocess.run(
        [*command, str(script), str(tmp_path)],
        check=True,
        timeout=600,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
    )
    found = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    assert found[0] == found[1]
    losses = [figures["loss"] for figures in found[0]["history"]]
    np.testing.assert_allclose(losses, [figures["loss"] for figures in one.history], rtol=1e-3)
    for name, value in one.model.state_dict().items():
        two = np.array(found[0]["weights"][name])
        np.testing.assert_allclose(two, value.numpy(), rtol=1e-2, atol=1e-3, err_msg=name)
    assert sorted(path.name for path in tmp_path.glob("*.ckpt")) == ["last.ckpt"]


def test_more_processes_than_rows_are_refused():
    from types import SimpleNamespace

    from prenet_gnn.training.parallel import own_share

    fabric = SimpleNamespace(world_size=4, global_rank=1)
    assert own_share(fabric, 6).tolist() == [1, 5]
    with pytest.raises(ConfigError, match=r"3 rows for 4 processes.*batch_size"):
        own_share(fabric, 3)


def test_store_round_trip(rows, tmp_path):
    path = tmp_path / "encoded.npz"
    rows.store.save(path)
    again = Store.load(path)
    assert set(again.entries) == set(rows.store.entries)
    for key, entry in rows.store.entries.items():
        np.testing.assert_allclose(again.entries[key].work, entry.work)
        np.testing.assert_array_equal(again.entries[key].edges, entry.edges)


@pytest.mark.parametrize(
    "change", ["train.epoch=3", "modle.hidden=4", "train.epochs", "model.width=3"]
)
def test_unknown_settings_are_refused(change):
    with pytest.raises(ConfigError):
        load_config(None, [change])


def test_settings_from_file_and_changes(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("members = 3\n[train]\nepochs = 7\n")
    config = load_config(path, ["train.batch_size=8", "model.encoder.hidden=24"], seed=5)
    assert (config.members, config.train.epochs, config.train.seed) == (3, 7, 5)
    assert (config.train.batch_size, config.model.encoder.hidden) == (8, 24)


def test_muon_moves_matrices_as_the_one_of_pytorch_does():
    torch.manual_seed(0)
    shapes = [(16, 16), (16, 16), (24, 16), (16, 40)]
    ours = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    optimizers = (
        Muon(ours, lr=0.02, weight_decay=0.1),
        torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
    )
    start = [p.detach().clone() for p in ours]
    for _ in range(4):
        for own, other in zip(ours, theirs, strict=True):
            own.grad = torch.randn_like(own)
            other.grad = own.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for own, other, before in zip(ours, theirs, start, strict=True):
        # theirs works in bfloat16, which has eight bits
        moved, difference = (other - before).norm(), (own - other).norm()
        assert moved > 0.01
        assert difference < 0.03 * moved


def test_muon_leaves_what_has_no_gradient():
    matrices = [nn.Parameter(torch.ones(8, 8)) for _ in range(2)]
    matrices[0].grad = torch.eye(8)
    Muon(matrices, lr=0.1, weight_decay=0.0).step()
    assert not torch.equal(matrices[0], torch.ones(8, 8))
    assert torch.equal(matrices[1], torch.ones(8, 8))


def test_rows_of_one_graph_are_drawn_together_and_each_as_often_as_alone(rows):
    rng = np.random.default_rng(0)
    chosen = np.array([0, 1, 2, 3, 6, 7])  # three rows of one graph, one, and two
    weights = rows.weight[chosen] / rows.weight[chosen].sum()
    for size in (1, 2, 3):
        drawn = Clusters(rows, chosen, size).draw(rng, 60000)
        for company in drawn[:50]:
            assert len({rows.keys[i] for i in company}) == 1
            assert len(set(company)) == len(company) <= size
        counts = np.bincount(np.concatenate(drawn), minlength=12)[chosen]
        assert abs(counts.sum() - 60000) < 2000
        np.testing.assert_allclose(counts / counts.sum(), weights, rtol=0.05)


def test_a_fit_with_companies_is_the_same_each_time(rows):
    config = TrainConfig(
        epochs=1, rows_per_epoch=12, batch_size=6, rows_per_graph=3, operators_per_step=0
    )
    one, two = (fit_rows(rows, np.arange(12), EMPTY, SMALL, config) for _ in range(2))
    for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(("more", "kept"), [(0, 12), (5e3, 12), (-8e3, 9), (1e6, 9), (np.nan, 12)])
def test_rows_measured_on_another_network_are_left_out(rows, more, kept):
    frame = rows.frame.assign(
        params=[rows.encoded(i).total("trainable_numel") for i in range(len(rows))]
    )
    frame.loc[3:5, "params"] += more  # the three rows of one network
    found = load_rows(frame, [key.graph for key in rows.keys], rows.store)
    assert len(found) == kept
    assert ("net_64_4" in set(found.frame["model"])) == (kept == 12)


@pytest.mark.parametrize(
    ("name", "framework", "kept"),
    [
        ("tresnet_l", "torch-1.13", 9),
        ("tresnet_l", "torch-2.1.0", 12),
        ("tresnet_l", "torch-unknown", 12),
        ("resnet50", "torch-1.13", 12),
    ],
)
def test_rows_that_ran_an_extension_are_left_out(rows, name, framework, kept):
    frame = rows.frame.copy()
    frame.loc[3:5, ["model", "framework"]] = name, framework
    assert len(load_rows(frame, [key.graph for key in rows.keys], rows.store)) == kept
