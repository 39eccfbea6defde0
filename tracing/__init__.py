"""Turns PyTorch models into graphs of operators with shapes and costs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracing import zoo
    from tracing.capture.trace import trace
    from tracing.costs.formulas import register_cost
    from tracing.costs.node import NodeCost
    from tracing.errors import TraceError, UnsupportedOpError
    from tracing.graph.op_graph import BATCH_MARKER, TRACER_VERSION, OpGraph
    from tracing.graph.specs import Edge, OpNode, ParamSpec, Source, TensorSpec

_HOMES = {
    "trace": "capture.trace",
    "NodeCost": "costs.node",
    "register_cost": "costs.formulas",
    "TraceError": "errors",
    "UnsupportedOpError": "errors",
    "BATCH_MARKER": "graph.op_graph",
    "TRACER_VERSION": "graph.op_graph",
    "OpGraph": "graph.op_graph",
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
