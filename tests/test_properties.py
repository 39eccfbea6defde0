"""Laws that hold for any model: random ones against real runs on the CPU.

`PRENET_PROPERTY_EXAMPLES=300 pytest tests/test_properties.py` tries more models of each law.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any

import pytest

pytest.importorskip("hypothesis")

import itertools

import networkx as nx
from hypothesis import HealthCheck, Phase, given, settings
from networkx.readwrite import json_graph
from random_checks import flops_of_a_run, reordered, same_state, state
from random_models import Case, models

from prenet_gnn import Workload, load_predictor
from prenet_gnn.measuring.memory import saved_for_backward_bytes
from tracing import OpGraph, trace
from tracing.costs.storages import saved_bytes

# The default is small: every law sees a few models at every run of the tests.
EXAMPLES = int(os.environ.get("PRENET_PROPERTY_EXAMPLES", "12"))
T4 = "Tesla T4"
# How much shorter the predicted time of a fourfold batch may be. Models this small wait for the
# host, whose learned cost of a call knows the sizes of its tensors and is not monotone.
SLACK = 0.15
pytestmark = pytest.mark.filterwarnings("ignore:Complex modules are a new feature")


def law(share: float = 1.0) -> Any:
    """How many models a law tries, the same ones in every run."""
    return settings(
        max_examples=max(round(share * EXAMPLES), 1),
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )


def traced(case: Case, **options: Any) -> OpGraph:
    options = {"backend": "record", "unknown_ops": "error", **options}
    return trace(case.model, case.args, case.kwargs, **options)


@law()
@given(models())
def test_flops_and_parameters_equal_a_real_run(case: Case) -> None:
    graph = traced(case, loss="none", attention_backend="math")
    assert (graph.total_flops, graph.total_backward_flops) == flops_of_a_run(case)
    parameters = list(case.model.parameters())
    assert graph.total_params == sum(p.numel() for p in parameters)
    assert graph.trainable_params == sum(p.numel() for p in parameters if p.requires_grad)


# Recurrent operators are billed what cuDNN reserves; the CPU's kernels keep other things.
@law()
@given(models(("convolutional", "attention")))
def test_saved_bytes_are_within_two_percent_of_a_real_run(case: Case) -> None:
    ours = saved_bytes(traced(case, loss="none"), "cpu")
    assert ours == pytest.approx(saved_for_backward_bytes(case.model, case.run), rel=0.02)


@law(0.5)
@given(models())
def test_files_and_networkx_hold_the_graph_and_the_model_stays(case: Case) -> None:
    before = state(case)
    graph = traced(case, backend="export")
    assert same_state(before, state(case))
    assert OpGraph.from_json(graph.to_json()) == graph
    found = graph.to_networkx()
    again = json_graph.node_link_graph(
        json.loads(json.dumps(json_graph.node_link_data(found, edges="edges"))), edges="edges"
    )
    assert nx.utils.graphs_equal(found, again)
    assert [data["target"] for _, data in again.nodes(data=True)] == [n.target for n in graph]
    edges = sorted((e.source, e.target, e.bytes) for e in graph.edges)
    assert edges == sorted((a, b, data["bytes"]) for a, b, data in again.edges(data=True))


@law(0.5)
@given(models())
def test_another_batch_size_equals_another_trace(case: Case) -> None:
    scaled = traced(case).with_batch_size(7)
    assert scaled.replace(probe=None) == traced(case.resized(7))


@pytest.fixture(scope="module")
def predictor() -> Any:
    return load_predictor()


def workload_of(graph: OpGraph) -> Workload:
    return Workload(mode=graph.mode, optimizer="adamw" if graph.mode == "train" else "none")


def working(case: Case) -> OpGraph | None:
    """The graph, or None where a model only makes views."""
    graph = traced(case)
    return graph if any(n.kind != "view" for n in graph) else None


@law()
@given(case=models())
def test_predictions_add_up_and_know_no_order(predictor: Any, case: Case) -> None:
    graph = working(case)
    if graph is None:
        return
    both = [graph, reordered(graph, seed=1)]
    p, other = predictor.predict_many(both, T4, workload_of(graph))
    assert math.isfinite(p.seconds) and 0 < p.low_s <= p.seconds <= p.high_s < math.inf
    assert p.peak_memory_bytes > 0
    for depth in (1, 2, 9):
        sums = p.by_module(depth)
        assert math.isclose(sum(sums.values()), p.seconds, rel_tol=1e-6)
        assert min(sums.values()) >= -1e-6 * p.seconds
    assert other.seconds == pytest.approx(p.seconds, rel=1e-4)


@law(0.5)
@given(case=models())
def test_a_larger_batch_takes_no_less_time(predictor: Any, case: Case) -> None:
    graph = working(case)
    if graph is None:
        return
    sizes = [graph.with_batch_size(8 * 4**i) for i in range(5)]
    found = predictor.predict_many(sizes, T4, workload_of(graph))
    times = [p.seconds for p in found]
    assert all(b >= (1 - SLACK) * a for a, b in itertools.pairwise(times)), times
    # memory has no learned part
    memory = [p.peak_memory_bytes for p in found]
    assert memory == sorted(memory)
