"""The interface for search scripts: one trace, threads, processes, and the example in the docs."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

from prenet_gnn import Workload, load_predictor
from tracing import BATCH_MARKER, OpGraph, trace

ROOT = Path(__file__).resolve().parents[1]
DEVICES = ["Tesla T4", "NVIDIA GeForce RTX 3090"]


class Counted(nn.Module):
    """Counts how often it is run, and so how often it is traced."""

    runs = 0

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5))
        self.body(torch.zeros(1, 3, 16, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        type(self).runs += 1
        return self.body(x)


@pytest.fixture(scope="module")
def predictor():
    return load_predictor()


def graph_at(batch_size: int) -> OpGraph:
    return trace(Counted(), (torch.zeros(batch_size, 3, 16, 16, device="cpu"),))


def test_other_batch_sizes_never_trace_again(predictor, monkeypatch):
    graph = trace(Counted().to("meta"), (torch.zeros(BATCH_MARKER, 3, 16, 16, device="meta"),))
    monkeypatch.setattr(Counted, "runs", 0)
    graphs = [graph.with_batch_size(n) for n in (1, 2, 8, 64)]
    found = predictor.predict_many(graphs, DEVICES[0], Workload())
    assert [p.batch_size for p in found] == [1, 2, 8, 64]
    assert Counted.runs == 0


def test_a_graph_at_its_own_size_is_traced_once_more_and_not_again(monkeypatch):
    graph = graph_at(4)
    graph.with_batch_size(8)
    monkeypatch.setattr(Counted, "runs", 0)
    larger = graph.with_batch_size(16).with_batch_size(32)
    assert Counted.runs == 0
    assert larger.nodes == graph_at(32).nodes


def test_threads_with_different_questions_get_their_own_answers(predictor):
    graph = graph_at(4)
    jobs = [
        (graph.with_batch_size(n), device, Workload(precision=precision))
        for n in (2, 4, 8)
        for device in DEVICES
        for precision in ("fp32", "amp_fp16")
    ]
    alone = [predictor.predict(*job).seconds for job in jobs]
    fresh = graph_at(4)
    shared = [(fresh.with_batch_size(g.batch_size), d, w) for g, d, w in jobs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda job: predictor.predict(*job).seconds, shared * 3))
    for one, other in zip(alone * 3, together, strict=True):
        assert math.isclose(one, other, rel_tol=1e-5)


def test_another_process_answers_from_a_json_file(predictor, tmp_path):
    graph = graph_at(4)
    here = predictor.predict(graph.with_batch_size(16), DEVICES[0], Workload()).seconds
    path = tmp_path / "graph.json.gz"
    graph.to_json(path)
    code = (
        "import sys; from pathlib import Path\n"
        "from prenet_gnn import Workload, load_predictor\n"
        "from tracing import OpGraph\n"
        "graph = OpGraph.from_json(Path(sys.argv[1])).with_batch_size(16)\n"
        f"print(load_predictor().predict(graph, {DEVICES[0]!r}, Workload()).seconds)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert math.isclose(float(done.stdout), here, rel_tol=1e-6)


def test_the_example_of_the_docs_runs(tmp_path):
    pytest.importorskip("torchvision")
    text = (ROOT / "docs" / "what_if.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- example:what-if -->\n```python\n(.*?)```", text, re.DOTALL)
    assert found
    script = tmp_path / "search.py"
    script.write_text(found[1], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=None,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"NVIDIA A100-SXM4-80GB, \w+, batch \d+", done.stdout.strip())


def test_notebooks_show_graphs_and_predictions(predictor):
    graph = graph_at(4).replace(meta={"model": "<b>net"})
    prediction = predictor.predict(graph, DEVICES[0], Workload())
    for text in (graph._repr_html_(), prediction._repr_html_()):
        assert "&lt;b&gt;net" in text
        assert "<b>net" not in text
        assert text.count("<tr>") == text.count("</tr>") > 3
    assert "GiB" in prediction._repr_html_() or "MiB" in prediction._repr_html_()
    assert f"{graph.total_params:,} parameters" in graph._repr_html_()
