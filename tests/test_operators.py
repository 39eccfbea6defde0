"""Operators timed alone become one-node graphs with the right work."""

import json

import pandas as pd
import pytest

from prenet_gnn.errors import DataError
from prenet_gnn.training.operators import choose, operator_graph, operator_key
from prenet_gnn.training.rows import operator_rows
from prenet_gnn.training.store import Store

CASES = [
    ("linear", {"B": 2, "M": 3, "N": 5, "K": 7}, 2 * 2 * 3 * 5 * 7),
    ("linear", {"tokens": 4, "in_features": 5, "out_features": 6, "bias": False}, 2 * 4 * 5 * 6),
    ("bmm", {"B": 2, "M": 3, "N": 4, "K": 5}, 2 * 2 * 3 * 4 * 5),
    ("mm", {"M": 3, "N": 4, "K": 5}, 2 * 3 * 4 * 5),
    ("gemm", {"M": 3, "N": 4, "K": 5}, 2 * 3 * 4 * 5),
    ("softmax", {"B": 3, "H": 4}, 0),
    ("add", {"tokens": 3, "hidden": 4}, 0),
    ("embedding", {"tokens": 3, "rows": 10, "dim": 4}, 0),
    (
        "conv",
        {"batch": 2, "in_ch": 3, "out_ch": 4, "kernel": 3, "in_size": 8, "stride": 1, "padding": 1},
        2 * 2 * 4 * 64 * 27,
    ),
]


@pytest.mark.parametrize(("op", "shape", "flops"), CASES)
def test_forward_work(op, shape, flops):
    graph = operator_graph(operator_key(op, "forward", json.dumps(shape)))
    working = [node for node in graph.nodes if node.kind != "view"]
    assert len(working) == 1
    assert graph.total_flops == flops


@pytest.mark.parametrize("which", ["backward_input", "backward_weight"])
def test_separate_backward_passes(which):
    shape = {
        "batch": 2,
        "in_ch": 4,
        "out_ch": 4,
        "kernel": 3,
        "in_size": 8,
        "stride": 1,
        "padding": 1,
    }
    graph = operator_graph(operator_key("conv", which, json.dumps(shape)))
    assert graph.total_backward_flops == graph.total_flops


def test_unknown_operators_are_named():
    with pytest.raises(DataError, match="fancy"):
        operator_graph(operator_key("fancy", "forward", '{"B": 1, "H": 2}'))


def frame(**changes):
    row = {
        "source": "neusight", "op": "linear", "phase": "forward", "precision": "fp32",
        "fp32_math": False, "gpu": "Tesla T4", "device": "Tesla T4", "framework": "torch-2.1.0",
        "shape": '{"B": 2, "M": 3, "N": 5, "K": 7}', "latency_s": 1e-4,
    }  # fmt: skip
    return pd.DataFrame([row | changes])


@pytest.mark.parametrize(
    "changes",
    [
        {"op": "rope"},
        {"fp32_math": True},
        {"precision": "fp8"},
        {"device": ""},
        {"phase": "accumulate_grad"},
        {"shape": '{"B": 1, "stat": "max of 200 calls"}'},
    ],
)
def test_rows_without_an_operator_of_ours_are_left_out(changes):
    assert len(choose(frame())) == 1
    assert len(choose(frame(**changes))) == 0


def test_rows_join_their_graphs():
    rows = operator_rows(choose(frame()), Store())
    assert len(rows) == 1
    assert rows.seconds[0] == 1e-4
    sample = rows.sample(0, rows.latents([0]))
    assert sample.floor == 1
    assert sample.workload.timed == "forward"
