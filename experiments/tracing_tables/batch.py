"""Graphs scaled to another batch size against fresh traces."""

from __future__ import annotations

from functools import partial
from time import process_time

from experiments.shared.ledger import Row
from experiments.tracing_tables.common import Study, counted
from experiments.tracing_tables.coverage import TRANSFORMERS, small
from experiments.tracing_tables.flops import NAMES
from tracing import BATCH_MARKER, OpGraph, trace, zoo
from tracing.zoo.transformers_models import READ_VALUES

SIZES = (2, 7)


def keys() -> list[str]:
    """The models of the FLOP table, and those of transformers that need no real run."""
    names = [f"transformers:{name}" for name in TRANSFORMERS if name not in READ_VALUES]
    return list(dict.fromkeys([*NAMES, *names]))


def _trace(name: str, batch: int) -> OpGraph:
    library, _, short = name.partition(":")
    if library == "transformers":
        model, args, kwargs = small(short, batch)
    else:
        model, args, kwargs = zoo.build(name, batch_size=batch, mode="train")
    return trace(model, args, kwargs)


def _plain(graph: OpGraph) -> OpGraph:
    return graph.replace(probe=None, retrace=None)


def row(name: str) -> Row:
    """Scales one trace to several sizes and compares node by node."""
    marked = _trace(name, BATCH_MARKER)
    start = process_time()
    scaled = {size: marked.with_batch_size(size) for size in SIZES}
    seconds = (process_time() - start) / len(SIZES)
    wrong = [size for size in SIZES if _plain(scaled[size]) != _plain(_trace(name, size))]
    verdict = "equal" if not wrong else f"differs at {' '.join(map(str, wrong))}"
    return {"verdict": verdict, "nodes": len(marked.nodes), "rescale_ms": round(1000 * seconds, 2)}


STUDY = Study("batch", keys, row, partial(counted, column="verdict"))
