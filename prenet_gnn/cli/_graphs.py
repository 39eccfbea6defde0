"""Turns the model that a command names into a graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from prenet_gnn.cli._options import ShapeOptions
from prenet_gnn.errors import ConfigError
from prenet_gnn.predictor.jobs import TraceRequest, attention_of
from prenet_gnn.workload.workload import Workload

if TYPE_CHECKING:
    from tracing import OpGraph


def graph_of(model: str, shape: ShapeOptions, workload: Workload) -> OpGraph:
    """Traces a model by name, or reads a graph that `prenet trace -o` wrote."""
    shape.checked()
    if model.endswith(".json") and ":" not in model:
        return _stored(model, shape, workload)
    from prenet_gnn.predictor.bulk import trace_request

    attention = attention_of(shape.attention.lower(), workload, model)
    request = TraceRequest(model, shape.image_size, shape.seq_len, workload.mode, attention)
    return trace_request(request, shape.batch)


def _stored(path: str, shape: ShapeOptions, workload: Workload) -> OpGraph:
    from tracing import OpGraph

    if shape.image_size or shape.seq_len or shape.attention:
        raise ConfigError(
            f"{path} is a traced graph, whose image size, sequence length and attention are fixed; "
            "name the model instead of the graph."
        )
    graph = OpGraph.from_json(Path(path))
    if graph.mode != workload.mode:
        raise ConfigError(
            f"{path} was traced for '{graph.mode}', not '{workload.mode}'; "
            f"give --mode {graph.mode} or trace it anew."
        )
    if shape.batch_size is None or shape.batch_size == graph.batch_size:
        return graph
    return graph.with_batch_size(shape.batch_size)
