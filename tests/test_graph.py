"""The graph as data: checks, files, networkx."""

from __future__ import annotations

import gzip
import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import networkx as nx
import pytest
import torch
from torch import nn

from tracing import BATCH_MARKER, OpGraph, OpNode, Source, TensorSpec, TraceError, trace
from tracing.graph.batch_size import rescale
from tracing.graph.data import GraphData
from tracing.graph.loss import with_loss
from tracing.views.json import from_json, to_json


@pytest.fixture(scope="module")
def graph() -> OpGraph:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(True), nn.Flatten(), nn.Linear(8 * 36, 5)
    )
    return trace(model, (torch.zeros(2, 3, 8, 8),), name="small")


def node(index: int, sources: tuple[Source, ...] = (), name: str = "relu") -> OpNode:
    spec = TensorSpec((2, 3))
    return OpNode(
        index, name, "aten.relu.default", "activation", "", sources, (spec,) * len(sources), (spec,)
    )


@pytest.mark.parametrize("name", ["g.json", "g.json.gz", "folder name/g.json"])
def test_round_trip(graph: OpGraph, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    text = graph.to_json(path)
    for read in (OpGraph.from_json(path), OpGraph.from_json(str(path)), OpGraph.from_json(text)):
        assert read == graph
        assert read.total_flops == graph.total_flops
        assert read.total_backward_flops == graph.total_backward_flops
        assert read.saved_bytes == graph.saved_bytes
    assert path.read_bytes()[:2] == (gzip.compress(b"")[:2] if name.endswith("gz") else b'{"')
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_an_input_that_wants_a_gradient_is_stored() -> None:
    wanted = trace(nn.Tanh(), (torch.zeros(2, 3, requires_grad=True),), loss="none")
    read = OpGraph.from_json(wanted.to_json())
    assert read == wanted
    assert read.nodes[0].sources[0].slot == 1


def test_a_stored_graph_rescales(graph: OpGraph) -> None:
    fresh = OpGraph.from_json(graph.to_json())
    with pytest.raises(TraceError, match="without a second trace"):
        fresh.with_batch_size(4)
    graph.with_batch_size(4)
    assert OpGraph.from_json(graph.to_json()).with_batch_size(4) == graph.with_batch_size(4)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": "other"}', "null"])
def test_files_that_hold_no_graph(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(TraceError) as caught:
        OpGraph.from_json(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["nodes", "parameters", "inputs", "mode", "batch_size"])
@pytest.mark.parametrize("value", [None, 7, [[1]], "text"])
def test_damaged_graphs_are_refused_or_harmless(graph: OpGraph, key: str, value: object) -> None:
    data = json.loads(graph.to_json())
    data[key] = value
    try:
        read = OpGraph.from_json(json.dumps(data))
    except TraceError as error:
        assert "\n" not in str(error)
    else:
        assert key in ("mode", "batch_size")
        assert isinstance(read, OpGraph)


def test_a_missing_file_and_a_missing_folder(graph: OpGraph, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot read"):
        OpGraph.from_json(tmp_path / "none.json")
    with pytest.raises(TraceError, match="cannot write"):
        graph.to_json(tmp_path / "none" / "g.json")


def test_edges_point_backwards() -> None:
    with pytest.raises(TraceError, match="not before it"):
        OpGraph((node(0, (Source("node", 0),)),))
    with pytest.raises(TraceError, match="does not exist"):
        OpGraph((node(0), node(1, (Source("node", 0, 1),))))
    with pytest.raises(TraceError, match="has index"):
        OpGraph((node(1),))
    assert len(OpGraph((node(0), node(1, (Source("node", 0),)))).edges) == 1


def test_functions_of_a_graph_return_its_own_type(graph: OpGraph) -> None:
    data = GraphData(graph.nodes, graph.parameters, graph.inputs, graph.outputs, 2)
    data = data.replace(retrace=graph.retrace)
    for made in (with_loss(data), rescale(data, 3), from_json(to_json(data), GraphData)):
        assert type(made) is GraphData
    for made in (with_loss(graph), graph.with_batch_size(3), OpGraph.from_json(graph.to_json())):
        assert type(made) is OpGraph


def test_nothing_can_be_changed(graph: OpGraph) -> None:
    with pytest.raises(FrozenInstanceError):
        graph.batch_size = 3  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        graph.nodes[0].kind = "x"  # type: ignore[misc]
    assert replace(graph.nodes[0], kind="other") != graph.nodes[0]


def test_networkx(graph: OpGraph) -> None:
    found = graph.to_networkx()
    assert nx.is_directed_acyclic_graph(found)
    assert found.number_of_nodes() == len(graph.nodes)
    assert found.number_of_edges() == len(graph.edges)
    assert sum(d["forward_flops"] for _, d in found.nodes(data=True)) == graph.total_flops
    last = len(graph.nodes) - 1
    # all but the counter of batch norm lead to the loss
    assert nx.ancestors(found, last) == set(range(last)) - {1}
    assert "\n" in "\n".join(nx.generate_graphml(found))


def test_columns_and_groups_add_up(graph: OpGraph) -> None:
    costs = graph.costs()
    assert set(map(len, costs.values())) == {len(graph.nodes)}
    assert sum(costs["forward_flops"]) == graph.total_flops
    for groups in (graph.by_module(1), graph.by_module(9), graph.by_operator()):
        assert sum(c.forward_flops for c in groups.values()) == graph.total_flops
        assert sum(c.backward_flops for c in groups.values()) == graph.total_backward_flops
    assert list(graph.by_module()) == ["0", "1", "2", "3", "4", "loss"]
    assert "small" in repr(graph)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "8", None])
def test_batch_sizes_that_make_no_sense(graph: OpGraph, size: object) -> None:
    with pytest.raises(TraceError, match="at least 1"):
        graph.with_batch_size(size)  # type: ignore[arg-type]


def test_batch_sizes_that_cannot_be_reached() -> None:
    scalar = trace(nn.Sequential(nn.ReLU()), (torch.zeros(()),))
    with pytest.raises(TraceError, match="no common first dimension"):
        scalar.with_batch_size(2)

    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[: x.shape[0] // 2 * 2 + x.shape[0] % 3]

    with pytest.raises(TraceError, match="trace the model again"):
        trace(Odd(), (torch.zeros(4, 3),)).with_batch_size(5)

    class Other(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu() if x.shape[0] > 100 else x.exp().sin()

    with pytest.raises(TraceError, match="other operators"):
        trace(Other(), (torch.zeros(4, 3),)).with_batch_size(5)


def test_the_marker_is_a_prime_without_relatives() -> None:
    assert all(BATCH_MARKER % n for n in range(2, 46))
    assert 45**2 < BATCH_MARKER < 46**2 + 100
