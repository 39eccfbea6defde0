"""Refuses questions of wrong types by name, and not by what would break later."""

from __future__ import annotations

from typing import Any

from prenet_gnn.errors import ConfigError, PreNetError
from prenet_gnn.workload.workload import Workload


def check_graph(graph: Any) -> None:
    """Refuses what is no graph, and graphs in which nothing runs.

    Raises:
        ConfigError: It is no graph.
        PreNetError: There is nothing to predict.
    """
    from tracing import OpGraph

    if not isinstance(graph, OpGraph):
        raise ConfigError(
            f"a prediction takes a graph that tracing.trace made, not {type(graph).__name__}."
        )
    if not graph.nodes:
        raise PreNetError("the graph has no operators: there is nothing to predict.")
    empty = [name for name, spec in graph.inputs.items() if 0 in spec.shape[:1]]
    if empty:
        raise PreNetError(f"the input '{empty[0]}' has no sample: there is nothing to predict.")


def check_workload(workload: Any) -> None:
    """Refuses what is no workload.

    Raises:
        ConfigError: It is none.
    """
    if not isinstance(workload, Workload):
        raise ConfigError(f"a workload is a prenet_gnn.Workload, not {type(workload).__name__}.")
