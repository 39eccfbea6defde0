"""The HTML report: whole, self-contained and alive in a browser."""

from __future__ import annotations

import math
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from torch import nn

from prenet_gnn import Workload, get_hardware, load_predictor
from prenet_gnn.cli import main
from prenet_gnn.planning import PlanRequest, compare, plan
from tracing import BATCH_MARKER, OpGraph, trace

pytest.importorskip("plotly")

from experiments.shared.browser import find_browser, opened
from prenet_gnn.reporting import Report, write_report
from prenet_gnn.reporting.charts import CURVE_POINTS, memory_over_time, module_tree

T4 = "Tesla T4"
DEVICES = (T4, "NVIDIA GeForce RTX 3090", "NVIDIA A100-SXM4-80GB", "Tesla K80")
HOSTILE = 'net </script><img src=x onerror="alert(1)">'


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        blocks = [nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256), nn.ReLU())
                  for _ in range(4)]  # fmt: skip
        self.layers = nn.Sequential(*blocks)
        self.head = nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x))


@pytest.fixture(scope="module")
def predictor():
    return load_predictor()


@pytest.fixture(scope="module")
def marker() -> OpGraph:
    return trace(Net().to("meta"), (torch.zeros(BATCH_MARKER, 256, device="meta"),), name=HOSTILE)


@pytest.fixture(scope="module")
def report_path(predictor, marker, tmp_path_factory) -> Path:
    graph, workload = marker.with_batch_size(64), Workload(precision="fp32")
    request = PlanRequest(samples=10**6, devices=DEVICES, sampler="none")
    prediction = predictor.predict(graph, T4, workload)
    found = plan(marker, predictor, workload, request)
    # which options no other beats depends on the weights; the chart is drawn from two or more
    found = replace(found, trade_off=(found.best, *found.alternatives))
    report = Report(
        title=HOSTILE,
        graph=graph,
        hardware=get_hardware(T4),
        prediction=replace(prediction, warnings=("a <warning>",)),
        comparison=compare(graph, predictor, workload, devices=DEVICES),
        plan=found,
        inputs={"command": "test", "model": HOSTILE},
        weights={"rows": 1},
    )
    path = tmp_path_factory.mktemp("report") / "r.html"
    write_report(path, report)
    return path


class Outside(HTMLParser):
    """Finds what a page loads or links to, and the text outside scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.text: list[str] = []
        self.inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside.append(tag)
        self.links += [str(v) for n, v in attrs if n in ("src", "href") and v != "data:,"]

    def handle_data(self, data: str) -> None:
        if not self.inside or self.inside[-1] not in ("script", "style"):
            self.text.append(data)


def test_the_file_is_self_contained_and_says_everything(report_path):
    parser = Outside()
    text = report_path.read_text(encoding="utf-8")
    parser.feed(text)
    assert parser.links == []
    shown = " ".join(parser.text)
    for words in (HOSTILE, "a <warning>", T4, "90% interval", "peak memory", "Plan", "plotly",
                  "torch", "precision", "USD/h"):  # fmt: skip
        assert words in shown, words
    assert text.count("</script>") == text.count("<script")


def test_a_browser_shows_all_charts_and_a_click_zooms(report_path):
    pytest.importorskip("playwright", reason="playwright is not installed")
    if find_browser() is None:
        pytest.skip("no browser found: install chromium (Debian: apt-get install chromium)")
    with opened(report_path) as loaded:
        page = loaded.page
        page.wait_for_function(
            "(charts => charts.length > 0 && charts.every(c => c.querySelector('.main-svg')))"
            "([...document.querySelectorAll('.plotly-graph-div')])"
        )
        names = page.eval_on_selector_all(
            ".plotly-graph-div", "charts => charts.filter(c => c.querySelector('.main-svg'))"
            ".map(c => c.id)"
        )  # fmt: skip
        assert set(names) == {
            f"chart-{n}" for n in ("devices", "cost", "module", "operator", "memory", "tradeoff")
        }
        boxes = page.locator("#chart-module g.slice")
        before = boxes.count()
        assert before > 5
        level = "document.getElementById('chart-module').data[0].level"
        assert page.evaluate(level) is None
        page.locator("#chart-module g.slice", has_text="layers").first.click()
        page.wait_for_function(f"{level} !== undefined")
        assert page.evaluate(level).endswith("/layers")
        assert loaded.errors == []
        assert [url for url in loaded.requests if not url.startswith("file:")] == []


def test_modules_nest_and_add_up(predictor, marker):
    prediction = predictor.predict(marker.with_batch_size(8), T4, Workload())
    ids, labels, parents, seconds = module_tree(prediction)
    assert len(set(ids)) == len(ids) == len(labels)
    assert parents.count("") == 1
    by_id = dict(zip(ids, seconds, strict=True))
    assert math.isclose(max(seconds), prediction.seconds, rel_tol=1e-6)
    for parent in set(parents) - {""}:
        inside = [s for p, s in zip(parents, seconds, strict=True) if p == parent]
        assert math.isclose(sum(inside), by_id[parent], rel_tol=1e-6)


def test_thinning_keeps_the_peak_of_memory():
    from prenet_gnn.memory.iteration import MemoryMoment

    moments = [MemoryMoment("forward", 0, 0, i % 997, 0) for i in range(10 * CURVE_POINTS)]
    moments[4321] = MemoryMoment("backward", 0, 0, 2**30, 0)
    figure = memory_over_time(moments, 2.0**40)
    assert max(max(trace.y) for trace in figure.data) == 1.0
    assert len(figure.data[0].x) <= CURVE_POINTS


def test_commands_write_reports(tmp_path, marker, capsys):
    stored, any_size = tmp_path / "g.json", tmp_path / "marker.json"
    marker.with_batch_size(32).to_json(stored)
    marker.to_json(any_size)
    device = ["--devices", T4, "--devices", "NVIDIA A100-SXM4-80GB"]
    for words in (
        ["predict", str(stored), "--hardware", T4],
        ["compare", str(stored), *device],
        ["plan", str(any_size), *device, "--samples", "1000", "-b", "64", "--checkpointing"],
    ):
        path = tmp_path / f"{words[0]}.html"
        assert main([*words, "--report", str(path)]) == 0
        text = path.read_text(encoding="utf-8")
        assert 'id="chart-module"' in text
        assert 'id="chart-devices"' in text
        assert ('id="plan"' in text) == (words[0] == "plan")
    assert main(["predict", str(stored), "--hardware", T4, "--report", "r.pdf"]) == 1
    assert "name it r.html" in capsys.readouterr().err
