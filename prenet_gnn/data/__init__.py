"""Measured times, the cache of traced graphs, and how rows are split into training and test."""

from __future__ import annotations

from prenet_gnn.common.lazy import lazy

# Names are loaded on first use: pandas takes a third of a second to import.
_HOME = {
    "find_data_dir": "data.tables",
    "read_measurements": "data.tables",
    "read_operators": "data.tables",
    "read_memory": "data.tables",
    "training_rows": "data.tables",
    "read_published": "data.published",
    "RowProblem": "data.reading",
    "check_tables": "data.checks",
    "GraphKey": "data.keys",
    "CacheReport": "data.graphs",
    "graph_requests": "data.keys",
    "build_cache": "data.graphs",
    "load_graph": "data.graphs",
    "cache_measurements": "data.graphs",
    "family_of": "data.families",
    "fetch_sources": "data.fetch",
    "Split": "data.splits",
}

__all__ = sorted(_HOME)

__getattr__, __dir__ = lazy(globals(), _HOME)
