"""How long the costs of a graph take; `pytest -m slow tests/test_benchmarks.py` prints a table."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.tracing_tables.speed import chain
from tracing.costs import node_cost

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
