"""Graphs scaled to another batch size against fresh traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter

from experiments.tracing_tables.common import Row, attempt
from experiments.tracing_tables.flops import NAMES as NETS
from tracing import BATCH_MARKER, OpGraph, trace, zoo

SIZES = (2, 7, 64)
NAMES = NETS


def _trace(name: str, batch: int) -> OpGraph:
    model, args, kwargs = zoo.build(name, batch_size=batch, mode="train")
    return trace(model, args, kwargs, backend="record")


def _plain(graph: OpGraph) -> OpGraph:
    return graph.replace(probe=None, retrace=None)


def _row(name: str) -> Row:
    marked = _trace(name, BATCH_MARKER)
    start = perf_counter()
    scaled = {size: marked.with_batch_size(size) for size in SIZES}
    seconds = (perf_counter() - start) / len(SIZES)
    wrong = [size for size in SIZES if _plain(scaled[size]) != _plain(_trace(name, size))]
    verdict = "equal" if not wrong else f"differs at {', '.join(map(str, wrong))}"
    return {"nodes": len(marked.nodes), "rescale_ms": round(1000 * seconds, 2), "verdict": verdict}


def rows(names: Iterable[str]) -> Iterator[Row]:
    """One row for each model."""
    for name in names:
        row = attempt(lambda name=name: _row(name), model=name)  # type: ignore[misc]
        yield {"verdict": "failed", **row}
