"""Costs of a graph, steps of an optimizer; `pytest -m slow tests/test_benchmarks.py` times them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from networks import small

from experiments.shared.graphs import chain
from prenet_gnn.training.optimizer import Muon
from tracing.costs.node import node_cost

pytest.importorskip("pytest_benchmark")


@pytest.mark.slow
@pytest.mark.parametrize("length", [100, 1_000, 10_000, 50_000])
@pytest.mark.benchmark(group="cost of a graph")
def test_cost_of_a_graph(benchmark: Any, length: int) -> None:
    nodes = chain(length).nodes
    costs = benchmark(lambda: [node_cost(node) for node in nodes])
    assert len(costs) == length
    benchmark.extra_info["microseconds_per_node"] = 1e6 * benchmark.stats["mean"] / length


@pytest.mark.slow
@pytest.mark.parametrize("length", [100, 1_000, 10_000, 50_000])
@pytest.mark.benchmark(group="bytes saved for the backward pass")
def test_saved_bytes_of_a_graph(benchmark: Any, length: int) -> None:
    graph = chain(length)
    saved = benchmark.pedantic(lambda: graph.replace().saved_bytes, rounds=3)
    assert saved > 0


@pytest.mark.slow
@pytest.mark.parametrize("ours", [True, False], ids=["muon of the package", "muon of torch"])
@pytest.mark.benchmark(group="optimizer step over the matrices of a network")
def test_muon_step(benchmark: Any, ours: bool) -> None:
    torch.set_num_threads(1)
    network = small(hidden=64, head=64)
    matrices = [p for p in network.parameters() if p.dim() == 2 and min(p.shape) > 8]
    for matrix in matrices:
        matrix.grad = torch.randn_like(matrix)
    make = Muon if ours else torch.optim.Muon
    before = matrices[0].detach().clone()
    benchmark(make(matrices, lr=1e-3, weight_decay=0.0).step)
    assert not torch.equal(matrices[0], before)
