"""Predictions with the shipped weights, and weights that must be refused."""

import json
import math
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from prenet_gnn import Workload, list_hardware, load_predictor
from prenet_gnn.errors import CheckpointError, ConfigError, PreNetError, UnknownHardwareError
from prenet_gnn.network.checkpoint import SHIPPED, load_checkpoint, save_checkpoint
from tracing import OpGraph, trace, zoo

H100 = "NVIDIA H100-SXM5-80GB"


@pytest.fixture(scope="module")
def predictor():
    return load_predictor()


@pytest.fixture(scope="module")
def resnet():
    return trace(*zoo.build("torchvision:resnet50", batch_size=64))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def test_parts_add_up(predictor, resnet):
    p = predictor.predict(resnet, H100, Workload(precision="amp_bf16"))
    assert 0 < p.low_s < p.seconds < p.high_s
    assert math.isclose(p.forward_s + p.backward_s + p.optimizer_s, p.seconds, rel_tol=1e-6)
    for sums in (p.by_module(), p.by_module(depth=1), p.by_operator()):
        assert math.isclose(sum(sums.values()), p.seconds, rel_tol=1e-6)
        assert all(seconds >= 0 for seconds in sums.values())
    assert p.forward_s < p.backward_s
    assert json.loads(json.dumps(p.to_dict()))["hardware"] == H100


def test_every_device_predicts(predictor, resnet):
    found = predictor.predict_many(resnet, [d.name for d in list_hardware()], Workload())
    assert len(found) == len(list_hardware())
    assert all(math.isfinite(p.seconds) and p.seconds > 0 for p in found)
    by_name = {p.hardware: p.seconds for p in found}
    assert by_name["Tesla K80"] > by_name["Tesla T4"] > by_name[H100]


def test_more_samples_take_longer(predictor, resnet):
    times = [
        predictor.predict(resnet.with_batch_size(n), "Tesla T4", Workload()).seconds
        for n in (8, 32, 128, 512)
    ]
    assert times == sorted(times)


def test_inference_is_shorter_than_training(predictor, resnet):
    infer = predictor.predict(resnet, H100, Workload(mode="infer", optimizer="none"))
    train = predictor.predict(resnet, H100, Workload())
    assert infer.seconds < train.seconds
    assert infer.backward_s == infer.optimizer_s == 0


def test_many_gives_what_one_gives(predictor, resnet):
    loads = [Workload(), Workload(precision="fp64"), Workload(mode="infer")]
    many = predictor.predict_many(resnet, "Tesla T4", loads)
    for p, workload in zip(many, loads, strict=True):
        alone = predictor.predict(resnet, "Tesla T4", workload)
        assert math.isclose(p.seconds, alone.seconds, rel_tol=1e-4)


def test_an_unstated_framework_widens_the_interval_only(predictor, resnet):
    stated = predictor.predict(resnet, "Tesla T4", Workload())
    open_ = predictor.predict(resnet, "Tesla T4", Workload(framework=""))
    assert math.isclose(open_.seconds, stated.seconds, rel_tol=1e-6)
    assert open_.low_s < stated.low_s < stated.high_s < open_.high_s


def test_threads_share_a_predictor(predictor, resnet):
    alone = predictor.predict(resnet, H100, Workload()).seconds
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(predictor.predict, resnet, H100, Workload()) for _ in range(8)]
        assert all(math.isclose(job.result().seconds, alone, rel_tol=1e-5) for job in jobs)


def test_a_users_recurrent_network(predictor):
    graph = trace(Recurrent(), (torch.zeros(16, 50, 32),))
    p = predictor.predict(graph, "NVIDIA GeForce RTX 3090", Workload())
    assert p.seconds > 0
    assert any("lstm" in name for name in p.by_module())


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda p, g: p.predict(g, "RTX 9999", Workload()), UnknownHardwareError),
        (lambda p, g: p.predict(OpGraph(nodes=()), H100, Workload()), PreNetError),
        (lambda p, g: p.predict_many([g, g], [H100] * 3, Workload()), ConfigError),
        (lambda p, g: Workload(precision="fp12"), ConfigError),
        (lambda p, g: Workload(timed="forward+sleep"), ConfigError),
    ],
)
def test_bad_questions_get_one_line(predictor, resnet, change, error):
    with pytest.raises(error) as caught:
        change(predictor, resnet)
    assert len(str(caught.value).splitlines()) == 1


def test_checkpoint_round_trip(tmp_path, predictor, resnet):
    save_checkpoint(predictor.checkpoint, tmp_path / "w")
    again = load_predictor(tmp_path / "w")
    workload = Workload(precision="amp_fp16")
    first = predictor.predict(resnet, H100, workload)
    assert again.predict(resnet, H100, workload).seconds == first.seconds


def test_shipped_weights_are_small_and_described():
    size = sum(path.stat().st_size for path in SHIPPED.iterdir())
    assert size < 20e6
    facts = load_checkpoint().facts
    assert facts.rows > 0
    assert facts.sources


def damaged(folder, name, change):
    shutil.copytree(SHIPPED, folder)
    path = folder / name
    path.write_bytes(change(path.read_bytes()))
    return folder


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("weights.safetensors", lambda b: b[:-5], "sha256"),
        ("weights.safetensors", lambda b: b[:100] + b"x" + b[101:], "sha256"),
        ("model.json", lambda b: b[:50], "damaged"),
        ("model.json", lambda b: b"[]", "schema"),
        ("model.json", lambda b: b.replace(b"prenet-weights-2", b"prenet-weights-9"), "schema"),
        (
            "model.json",
            lambda b: b.replace(b'"log_clock"', b'"log_tick"'),
            "'device'.*log_clock, log_tick",
        ),
        ("model.json", lambda b: b.replace(b'"hidden": ', b'"hidden": 1'), "do not fit"),
    ],
)
def test_damaged_weights_are_refused(tmp_path, name, change, says):
    with pytest.raises(CheckpointError, match=says) as caught:
        load_checkpoint(damaged(tmp_path / "w", name, change))
    assert len(str(caught.value).splitlines()) == 1


def test_missing_weights_are_named(tmp_path):
    with pytest.raises(CheckpointError, match="holds no weights"):
        load_checkpoint(tmp_path / "nothing")


def test_measured_step_of_an_rtx_3090(data_dir, predictor):
    pytest.importorskip("timm")
    from prenet_gnn.data import read_measurements

    frame = read_measurements(data_dir)
    chosen = frame[
        (frame.model == "resnet50")
        & (frame.gpu == "NVIDIA GeForce RTX 3090")
        & (frame["mode"] == "train")
        & (frame.framework == "torch-1.12")
        & ~frame.channels_last
    ]
    row = chosen.iloc[0]
    graph = trace(*zoo.build("timm:resnet50", batch_size=int(row.batch_size)))
    workload = Workload(
        precision="amp_fp16", optimizer="sgd_momentum", framework=row.framework, timed=row.timed
    )
    p = predictor.predict(graph, row.gpu, workload)
    assert abs(p.seconds / row.step_s - 1) < 0.1
