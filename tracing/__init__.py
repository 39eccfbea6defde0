"""Turns PyTorch models into graphs of operators with shapes and costs.

Rooms in the order in which data flows (`errors` apart, imports go graph, costs, views, op_graph,
capture, zoo):

    zoo       models by name, with example inputs
    capture   from a model and one call of it to operator calls
    graph     those calls as plain data; what a gradient reaches; other batch sizes
    costs     FLOPs, bytes, saved tensors and the memory timeline of that data
    views     tables, pages and files of that data
    op_graph  `OpGraph`: the data with one method for every cost and view, what users hold
    errors    what a user can do wrong
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracing import zoo
    from tracing.capture.trace import trace
    from tracing.costs.formulas import register_cost
    from tracing.costs.node import NodeCost
    from tracing.errors import TraceError, UnsupportedOpError
    from tracing.graph.batch_size import BATCH_MARKER
    from tracing.graph.data import TRACER_VERSION
    from tracing.graph.specs import Edge, OpNode, ParamSpec, Source, TensorSpec
    from tracing.op_graph import OpGraph

_HOMES = {
    "trace": "capture.trace",
    "NodeCost": "costs.node",
    "register_cost": "costs.formulas",
    "TraceError": "errors",
    "UnsupportedOpError": "errors",
    "BATCH_MARKER": "graph.batch_size",
    "TRACER_VERSION": "graph.data",
    "OpGraph": "op_graph",
    "Edge": "graph.specs",
    "OpNode": "graph.specs",
    "ParamSpec": "graph.specs",
    "Source": "graph.specs",
    "TensorSpec": "graph.specs",
}

__all__ = [
    "BATCH_MARKER",
    "TRACER_VERSION",
    "Edge",
    "NodeCost",
    "OpGraph",
    "OpNode",
    "ParamSpec",
    "Source",
    "TensorSpec",
    "TraceError",
    "UnsupportedOpError",
    "register_cost",
    "trace",
    "zoo",
]


def __getattr__(name: str) -> Any:
    """Imports public names when they are first used, so that importing the package is fast."""
    if name == "zoo":
        return importlib.import_module("tracing.zoo")
    if name in _HOMES:
        return getattr(importlib.import_module(f"tracing.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tracing' has no attribute '{name}'")
