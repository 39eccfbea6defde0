"""What predictions are asked for: questions of wrong types are refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prenet_gnn.catalogue.spec import Hardware
from prenet_gnn.encoding.fields import NUMBER_FORMATS
from prenet_gnn.encoding.latents import device_key
from prenet_gnn.errors import ConfigError, PreNetError
from prenet_gnn.workload.workload import Workload

if TYPE_CHECKING:
    from prenet_gnn.encoding.batch import Sample
    from tracing import OpGraph

# Calls of one batch; more only costs memory.
CALLS_PER_BATCH = 40_000


@dataclass(frozen=True, slots=True)
class Question:
    """What one prediction is asked for, and the row that asks the network."""

    graph: OpGraph
    hardware: Hardware
    workload: Workload
    sample: Sample

    @property
    def device(self) -> str:
        """The device in its number format, as weights name it."""
        return device_key(self.hardware.name, NUMBER_FORMATS[self.sample.number_format])


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


def aligned(*columns: Any) -> list[tuple[Any, ...]]:
    """Graphs, devices and workloads side by side; one of a kind goes with all of another.

    Raises:
        ConfigError: The columns are of several lengths.
    """
    lists = [list(c) if isinstance(c, list | tuple) else [c] for c in columns]
    length = max(len(values) for values in lists)
    if any(len(values) not in (1, length) for values in lists):
        sizes = ", ".join(str(len(values)) for values in lists)
        raise ConfigError(
            f"graphs, hardware and workloads are {sizes} long: give equal lengths, or one of each."
        )
    return list(zip(*(v * length if len(v) == 1 else v for v in lists), strict=True))


def in_batches(questions: Sequence[Question]) -> Iterator[Sequence[Question]]:
    """Batches of questions; each has one at least, and no more calls than memory should hold."""
    start = 0
    while start < len(questions):
        end, calls = start, 0
        while end < len(questions) and (end == start or calls < CALLS_PER_BATCH):
            calls += len(questions[end].sample.encoded.operators)
            end += 1
        yield questions[start:end]
        start = end
