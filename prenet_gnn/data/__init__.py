"""Measured times, the cache of traced graphs, and how rows are split into training and test."""

from __future__ import annotations

import importlib
from typing import Any

# Names are loaded on first use: pandas takes a third of a second to import.
_EXPORTS = {
    "find_data_dir": "tables",
    "read_measurements": "tables",
    "read_operators": "tables",
    "read_memory": "tables",
    "training_rows": "tables",
    "RowProblem": "reading",
    "check_tables": "checks",
    "GraphKey": "keys",
    "CacheReport": "graphs",
    "graph_requests": "keys",
    "build_cache": "graphs",
    "load_graph": "graphs",
    "cache_measurements": "graphs",
    "family_of": "families",
    "fetch_sources": "fetch",
    "Split": "splits",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    """Imports the module that defines a public name when the name is first used."""
    if name not in _EXPORTS:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
