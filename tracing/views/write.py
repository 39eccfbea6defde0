"""Writes a graph into a file of the kind that its name asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tracing.errors import TraceError
from tracing.graph.data import GraphData
from tracing.views.csv import to_csv
from tracing.views.dot import to_dot
from tracing.views.files import write_atomic
from tracing.views.json import to_json
from tracing.views.networkx import to_graphml
from tracing.views.page import to_html

WRITERS: dict[str, Callable[[GraphData], str]] = {
    ".json": to_json,
    ".json.gz": to_json,
    ".csv": to_csv,
    ".graphml": to_graphml,
    ".dot": to_dot,
    ".gv": to_dot,
    ".html": to_html,
}


def write_graph(graph: GraphData, path: str | Path) -> None:
    """Writes a graph as the end of the file's name asks.

    Args:
        graph: The graph.
        path: A name ending in .json, .json.gz, .csv, .graphml, .dot, .gv or .html.
    """
    path = Path(path)
    ending = next((e for e in sorted(WRITERS, reverse=True) if path.name.lower().endswith(e)), None)
    if ending is None:
        raise TraceError(f"cannot tell the kind of '{path.name}': end it in {', '.join(WRITERS)}")
    write_atomic(path, WRITERS[ending](graph))
