"""Tables, files and the page of a graph."""

from __future__ import annotations

import csv
import io
from html.parser import HTMLParser
from pathlib import Path

import networkx as nx
import pytest
import torch
from torch import nn

from tracing import OpGraph, TraceError, trace
from tracing.views.csv import modules_csv, to_csv
from tracing.views.modules import module_rows
from tracing.views.table import format_table
from tracing.views.units import metric
from tracing.views.write import write_graph


@pytest.fixture(scope="module")
def graph() -> OpGraph:
    block = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    model = nn.ModuleDict({"body": nn.Sequential(block, block), "head <b>": nn.Linear(4, 3)})

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net["head <b>"](self.net["body"](x))

    return trace(Net(), (torch.zeros(2, 4),), name='net "one"')


def test_rows_nest_and_add_up(graph: OpGraph) -> None:
    rows = {row.module: row for row in module_rows(graph, None)}
    whole = rows[""]
    assert whole.forward_flops == graph.total_flops
    assert whole.backward_flops == graph.total_backward_flops
    assert whole.params == graph.total_params
    assert whole.saved_bytes == graph.saved_bytes
    assert whole.share == 1
    # a block that runs twice has its parameters once
    assert rows["net.body"].params == 4 * 8 + 8 + 8 * 4 + 4
    assert rows["net.body"].calls == 6
    assert rows["net"].forward_flops == rows["net.body"].forward_flops + 2 * 2 * 4 * 3
    paths = list(rows)
    assert all(path.rpartition(".")[0] in paths[: i + 1] for i, path in enumerate(paths))


@pytest.mark.parametrize("depth", [0, 1, 2, None])
def test_depth(graph: OpGraph, depth: int | None) -> None:
    levels = {row.depth for row in module_rows(graph, depth)}
    assert max(levels) == (depth if depth is not None else 4)
    assert format_table(graph, depth).count("\n") == len(module_rows(graph, depth)) + 2


def test_csv(graph: OpGraph) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(graph))))
    assert len(rows) == len(graph.nodes)
    assert sum(int(row["forward_flops"]) for row in rows) == graph.total_flops
    assert sum(int(row["saved_bytes"]) for row in rows) == graph.saved_bytes
    modules = list(csv.DictReader(io.StringIO(modules_csv(graph))))
    assert int(modules[0]["forward_flops"]) == graph.total_flops


@pytest.mark.parametrize("ending", ["json", "json.gz", "csv", "graphml", "dot", "gv", "html"])
def test_writing(graph: OpGraph, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a graph.{ending}"
    write_graph(graph, path)
    assert path.stat().st_size > 0
    if ending.startswith("json"):
        assert OpGraph.from_json(path) == graph
    if ending == "graphml":
        read = nx.read_graphml(path)
        assert read.number_of_nodes() == len(graph.nodes)
    if ending == "dot":
        text = path.read_text()
        assert text.startswith('digraph "net \\"one\\"" {')
        assert text.count(" -> ") == len(graph.edges)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_an_unknown_ending(graph: OpGraph, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="end it in"):
        write_graph(graph, tmp_path / "graph.xyz")


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.operators = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "input"):
            self.open.append(tag)
        self.operators += ("class", "op") in attrs
        assert not [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_escaped(graph: OpGraph, tmp_path: Path) -> None:
    write_graph(graph, tmp_path / "g.html")
    text = (tmp_path / "g.html").read_text()
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.operators == len(graph.nodes)
    assert "<b>" not in text
    assert "&lt;b&gt;" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (4_089_184_256, "4.09 GB"), (2e18, "2 EB")],
)
def test_metric(value: float, text: str) -> None:
    assert metric(value, "B") == text
