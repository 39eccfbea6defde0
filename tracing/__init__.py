"""Turns PyTorch models into graphs of operators with shapes and costs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracing import zoo
    from tracing.capture import trace
    from tracing.costs import NodeCost, register_cost
    from tracing.errors import TraceError, UnsupportedOpError
    from tracing.graph import BATCH_MARKER, TRACER_VERSION, OpGraph
    from tracing.specs import Edge, OpNode, ParamSpec, Source, TensorSpec

_HOMES = {
    "trace": "capture", "NodeCost": "costs", "register_cost": "costs", "TraceError": "errors",
    "UnsupportedOpError": "errors", "BATCH_MARKER": "graph", "TRACER_VERSION": "graph",
    "OpGraph": "graph", "Edge": "specs", "OpNode": "specs", "ParamSpec": "specs",
    "Source": "specs", "TensorSpec": "specs",
}  # fmt: skip

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
