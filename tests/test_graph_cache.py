from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import tracing.graph.data
from prenet_gnn.common.pids import is_running
from prenet_gnn.data import graphs, keys
from prenet_gnn.data.keys import GraphKey, error_path, graph_folder, graph_path, graph_requests
from prenet_gnn.errors import ConfigError, DataError
from tracing import BATCH_MARKER, trace

ROOT = Path(__file__).resolve().parents[1]
NETS = """
import os, time
import torch
from torch import nn

def make(width, batch_size):
    net = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 4))
    return net, (torch.empty(batch_size, 8),), {}

def small(batch_size=2, **kwargs):
    return make(16, batch_size)

def large(batch_size=2, **kwargs):
    return make(64, batch_size)

def third(batch_size=2, **kwargs):
    if "TEST_PID" in os.environ:
        with open(os.environ["TEST_PID"], "x") as file:
            file.write(str(os.getpid()))
    time.sleep(float(os.environ.get("TEST_NAP_S", "0")))
    return make(32, batch_size)

def broken(batch_size=2, **kwargs):
    raise ValueError("no such luck")

def deadly(batch_size=2, **kwargs):
    os._exit(3)
"""


@pytest.fixture
def nets(tmp_path: Path) -> str:
    """A file of tiny models; its path serves as the library of a key."""
    path = tmp_path / "nets.py"
    path.write_text(NETS)
    return str(path)


def keys_of(nets: str, *models: str) -> list[GraphKey]:
    return [GraphKey(nets, model, mode="infer") for model in models]


def leftovers(folder: Path) -> list[str]:
    found = graph_folder(folder).iterdir()
    return [p.name for p in found if p.name.startswith(".")]


def row(**changes: object) -> dict[str, object]:
    base = {"library": "timm", "model": "resnet50", "image_size": 224, "seq_len": 0}
    return {**base, "mode": "train", "torch_version": 112, **changes}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({}, GraphKey("timm", "resnet50", 224, 0, "train", "eager")),
        ({"torch_version": 113}, GraphKey("timm", "resnet50", 224, 0, "train", "eager")),
        ({"torch_version": 201}, GraphKey("timm", "resnet50", 224, 0, "train", "sdpa")),
        ({"torch_version": 0}, GraphKey("timm", "resnet50", 224, 0, "train", "eager")),
        (
            {"library": "torchvision", "image_size": 0, "torch_version": 0},
            GraphKey("torchvision", "resnet50", 224, 0, "train", "sdpa"),
        ),
        (
            {"library": "transformers", "model": "gpt2_large", "image_size": 0, "seq_len": 1024},
            GraphKey("transformers", "gpt2_large", 0, 1024, "train", "eager"),
        ),
    ],
)
def test_rows_map_to_the_graph_that_was_run(change, key):
    assert graph_requests(pd.DataFrame([row(**change)])).tolist() == [key]


def test_rows_of_one_model_share_a_key_and_keep_their_index():
    frame = pd.DataFrame([row(), row(model="vgg16"), row()], index=[7, 3, 5])
    requests = graph_requests(frame)
    assert requests.index.tolist() == [7, 3, 5]
    assert requests[7] is requests[5]
    assert requests[7] != requests[3]


def test_file_names_differ_for_all_keys_and_are_plain():
    made = [
        GraphKey(library, model, size, seq, mode, attention)
        for library in ("timm", "torchvision")
        for model in ("a/b", "a_b", "a b", "A_b")
        for size, seq in ((224, 0), (0, 224), (22, 40))
        for mode in ("train", "infer")
        for attention in ("eager", "sdpa")
    ]
    stems = {key.stem.lower() for key in made}
    assert len(stems) == len(made)
    assert all(set(stem) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.-") for stem in stems)


def test_cache_folder_comes_from_argument_then_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("PRENET_CACHE", str(tmp_path / "env"))
    assert keys.cache_root() == tmp_path / "env"
    assert keys.cache_root(tmp_path) == tmp_path
    monkeypatch.delenv("PRENET_CACHE")
    assert keys.cache_root() == Path.home() / ".cache" / "prenet-gnn"


def test_cached_graph_equals_a_fresh_trace_at_any_batch(tmp_path):
    pytest.importorskip("timm")
    from tracing import zoo

    wanted = [GraphKey("timm", "test_resnet", 64, 0, mode, "eager") for mode in ("train", "infer")]
    report = graphs.build_cache([*wanted, *wanted], tmp_path, workers=0)
    assert (report.requested, report.traced, report.left, report.failed) == (2, 2, 0, {})
    for key in wanted:
        stored = graphs.load_graph(key, tmp_path)
        assert stored.batch_size == BATCH_MARKER
        assert stored.mode == key.mode
        for batch in (1, 6):
            model, args, kwargs = zoo.build("timm:test_resnet", batch, 64, mode=key.mode)
            fresh, scaled = trace(model, args, kwargs), stored.with_batch_size(batch)
            assert scaled.total_flops == fresh.total_flops
            assert scaled.total_backward_flops == fresh.total_backward_flops
            assert scaled.total_params == fresh.total_params


def test_attention_flavours_differ_only_where_there_is_attention(tmp_path):
    pytest.importorskip("timm")
    wanted = [
        GraphKey("timm", model, 64, 0, "infer", attention)
        for model, attention in (
            ("test_resnet", "eager"),
            ("test_resnet", "sdpa"),
            ("test_vit2", "eager"),
            ("test_vit2", "sdpa"),
        )
    ]
    assert graphs.build_cache(wanted, tmp_path, workers=0).traced == 4
    sizes = [len(graphs.load_graph(key, tmp_path).nodes) for key in wanted]
    assert sizes[0] == sizes[1]
    assert sizes[2] > sizes[3]


def test_second_build_traces_nothing(tmp_path, nets, monkeypatch):
    wanted = keys_of(nets, "small", "broken")
    assert graphs.build_cache(wanted, tmp_path, workers=0).traced == 1

    def refuse(*args: object) -> None:
        raise AssertionError("traced again")

    monkeypatch.setattr("prenet_gnn.data.tracer._trace", refuse)
    report = graphs.build_cache(wanted, tmp_path, workers=0)
    assert (report.requested, report.present, report.traced) == (2, 2, 0)


def test_failures_are_stored_reported_and_tried_again_on_request(tmp_path, nets):
    (key,) = keys_of(nets, "broken")
    report = graphs.build_cache([key], tmp_path, workers=0)
    assert "no such luck" in report.failed[key]
    assert "\n" not in report.failed[key]
    assert "no such luck" in json.loads(error_path(key, tmp_path).read_text())["error"]
    assert json.dumps(report.to_dict())
    with pytest.raises(DataError, match=r"could not be traced: .*no such luck"):
        graphs.load_graph(key, tmp_path)
    Path(nets).write_text(NETS.replace('raise ValueError("no such luck")', "return make(8, 2)"))
    assert graphs.build_cache([key], tmp_path, workers=0).failed
    report = graphs.build_cache([key], tmp_path, workers=0, retry_failed=True)
    assert (report.traced, report.failed) == (1, {})


def test_missing_and_damaged_graphs_are_errors_that_say_what_to_do(tmp_path, nets):
    (key,) = keys_of(nets, "small")
    with pytest.raises(DataError, match="is not in the cache"):
        graphs.load_graph(key, tmp_path)
    graphs.build_cache([key], tmp_path, workers=0)
    path = graph_path(key, tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"is damaged .*: delete it"):
        graphs.load_graph(key, tmp_path)


def test_another_tracer_version_has_its_own_folder(tmp_path, nets, monkeypatch):
    (key,) = keys_of(nets, "small")
    graphs.build_cache([key], tmp_path, workers=0)
    monkeypatch.setattr(tracing.graph.data, "TRACER_VERSION", "test")
    with pytest.raises(DataError, match="is not in the cache"):
        graphs.load_graph(key, tmp_path)
    assert graphs.build_cache([key], tmp_path, workers=0).traced == 1


def test_the_time_limit_leaves_the_rest(tmp_path, nets):
    report = graphs.build_cache(keys_of(nets, "small", "large"), tmp_path, workers=0, limit_s=0.0)
    assert (report.traced, report.left) == (0, 2)


def test_bad_settings_are_errors(tmp_path):
    with pytest.raises(ConfigError, match="workers must be 0 or more"):
        graphs.build_cache([], tmp_path, workers=-1)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be used"):
        graphs.build_cache([], tmp_path / "file")


def test_neusight_configs_get_the_head_that_was_measured(tmp_path):
    configs = tmp_path / "data" / keys.NEUSIGHT_CONFIGS
    configs.mkdir(parents=True)
    bert = {"model_type": "bert", "architectures": ["BertLMHeadModel"]}
    (configs / "bert_large.json").write_text(json.dumps(bert))
    (configs / "gpt2_large.json").write_text(json.dumps({"model_type": "gpt2"}))
    (configs / "bad.json").write_text("{")
    heads = {}
    for mode in ("train", "infer"):
        key = GraphKey("transformers", "bert_large", 0, 512, mode, "eager")
        library, _, path = keys.zoo_spec(key, tmp_path / "data", tmp_path).partition(":")
        heads[library, mode] = json.loads(Path(path).read_text())["architectures"]
    assert heads == {
        ("transformers", "train"): ["BertForPreTraining"],
        ("transformers", "infer"): ["BertForSequenceClassification"],
    }
    other = GraphKey("transformers", "gpt2_large")
    assert keys.zoo_spec(other, tmp_path / "data", tmp_path).endswith("gpt2_large.json")
    assert keys.zoo_spec(GraphKey("timm", "resnet50"), None, tmp_path) == "timm:resnet50"
    with pytest.raises(DataError, match="not a model config"):
        keys.zoo_spec(GraphKey("transformers", "bad"), tmp_path / "data", tmp_path)


@pytest.mark.slow
def test_killed_build_goes_on_where_it_stopped(tmp_path, nets):
    """SIGKILL while the third model is traced: two graphs stay whole, nothing else is left."""
    wanted = keys_of(nets, "large", "small", "third")
    script = (
        "from prenet_gnn.data import graphs; from prenet_gnn.data.keys import GraphKey\n"
        "if __name__ == '__main__':\n"
        f"    graphs.build_cache([GraphKey({nets!r}, m, mode='infer') for m in "
        f"('large', 'small', 'third')], {str(tmp_path)!r}, workers=1)\n"
    )
    (tmp_path / "build.py").write_text(script)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TEST_NAP_S": "600"}
    env["TEST_PID"] = str(tmp_path / "third.pid")
    process = subprocess.Popen([sys.executable, str(tmp_path / "build.py")], env=env)
    try:
        worker = int(wait_for_text(tmp_path / "third.pid"))
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert graph_path(wanted[0], tmp_path).exists()
    assert graph_path(wanted[1], tmp_path).exists()
    deadline = time.monotonic() + 60
    while is_running(worker):
        assert time.monotonic() < deadline, "the worker outlived the build"
        time.sleep(0.2)
    times = [graph_path(key, tmp_path).stat().st_mtime_ns for key in wanted[:2]]
    report = graphs.build_cache(wanted, tmp_path, workers=0)
    assert (report.present, report.traced, report.failed) == (2, 1, {})
    assert [graph_path(key, tmp_path).stat().st_mtime_ns for key in wanted[:2]] == times
    assert not leftovers(tmp_path)
    for key in wanted:
        assert graphs.load_graph(key, tmp_path).nodes


@pytest.mark.slow
def test_a_model_that_kills_its_worker_fails_alone(tmp_path, nets):
    wanted = keys_of(nets, "deadly", "large", "small")
    report = graphs.build_cache(wanted, tmp_path, workers=1)
    assert report.traced == 2
    assert list(report.failed) == [wanted[0]]
    assert "process died" in report.failed[wanted[0]]
    assert not leftovers(tmp_path)


def wait_for_text(path: Path, limit_s: float = 240) -> str:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.1)
    raise AssertionError(f"{path} did not appear")
