"""Time of a trace against that of torch.export alone, and against the size of the graph."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any

import torch

from experiments.tracing_tables.common import Row, attempt
from tracing import OpGraph, OpNode, Source, TensorSpec, trace, zoo
from tracing.costs import node_cost

NAMES = ("timm:resnet50", "transformers:llama-3-8b")
CHAINS = (100, 1_000, 10_000, 50_000)


def _compare(name: str, repeats: int = 3) -> Row:
    model, args, kwargs = zoo.build(name, batch_size=2, mode="train")
    with_export, traced, recorded = [], [], []
    for _ in range(repeats):
        with_export.append(_seconds(lambda: torch.export.export(model, args, kwargs, strict=False)))
        traced.append(_seconds(lambda: trace(model, args, kwargs)))
        recorded.append(_seconds(lambda: trace(model, args, kwargs, backend="record")))
    base = median(with_export)
    return {
        "export_s": round(base, 3),
        "trace_ratio": round(median(traced) / base, 3),
        "record_ratio": round(median(recorded) / base, 3),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _seconds(work: Any) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def chain(length: int) -> OpGraph:
    """A graph of linear layers, one after the other."""
    spec, weight = TensorSpec((8, 64)), TensorSpec((64, 64))
    nodes = []
    for i in range(length):
        first = Source("node", i - 1) if i else Source("input", name="x")
        sources = (first, Source("param", name=f"{i}.weight"))
        nodes.append(
            OpNode(
                i, f"linear_{i}", "aten.linear.default", "linear", str(i), sources,
                (spec, weight), (spec,), {}, (bool(i), True), True,
            )
        )  # fmt: skip
    return OpGraph(tuple(nodes), batch_size=8)


def _linear(length: int) -> Row:
    graph = chain(length)
    seconds = min(_seconds(lambda: [node_cost(n) for n in graph.nodes]) for _ in range(3))
    memory = _seconds(lambda: graph.saved_bytes)
    return {
        "cost_us_per_node": round(1e6 * seconds / length, 2),
        "saved_us_per_node": round(1e6 * memory / length, 2),
    }


def rows() -> Iterator[Row]:
    """Models first, then chains of growing length."""
    for name in NAMES:
        yield attempt(lambda name=name: _compare(name), model=name)  # type: ignore[misc]
    for length in CHAINS:
        yield attempt(lambda n=length: _linear(n), model=f"chain of {length}")  # type: ignore[misc]
