"""The graphs of measured records."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from prenet_gnn.measuring.building import build

if TYPE_CHECKING:
    from prenet_gnn.data.records import MeasuredRecord
    from tracing import OpGraph


class GraphSource:
    """Traces the model of a record; records that differ in the batch share one trace.

    Where the batch is no size of the graph's own (a graph network's nodes), or another batch runs
    other operators, the model is traced at the record's batch.
    """

    def __init__(self) -> None:
        """Starts without traces."""
        self._graphs: dict[tuple[Any, ...], dict[int, OpGraph]] = {}

    def __call__(self, record: MeasuredRecord) -> OpGraph:
        """The record's graph at its batch size."""
        from tracing import trace
        from tracing.errors import TraceError

        key = (record.model, record.image_size, record.seq_len, record.mode)
        batch, known = record.batch_size, self._graphs.setdefault(key, {})
        if batch not in known:
            size, graph = next(iter(known.items()), (0, None))
            if graph is not None and graph.batch_size == size:
                with contextlib.suppress(TraceError):
                    return graph.with_batch_size(batch)
            sizes = (batch, record.image_size, record.seq_len)
            model, args, kwargs = build(record.model, *sizes, record.mode)
            known[batch] = trace(model, args, kwargs)
        return known[batch]
