"""How the sizes in a graph follow the batch size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tracing.errors import TraceError
from tracing.graph.data import GraphData
from tracing.graph.specs import OpNode, TensorSpec

Graph = TypeVar("Graph", bound=GraphData)

# A prime no layer width is a multiple of: in a graph traced at this batch size every multiple of
# it is proportional to the batch, so that no second trace is needed.
BATCH_MARKER = 2053
# Smallest prime that serves for the second trace when the first is at the marker itself.
SECOND_PROBE = 4099


def _mapped(value: Any, convert: Callable[[int], int]) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return convert(value)
    if isinstance(value, list | tuple):
        return [_mapped(item, convert) for item in value]
    return value


def map_node(node: OpNode, convert: Callable[[int], int]) -> OpNode:
    """The call with every size and integer argument converted."""

    def spec(old: TensorSpec) -> TensorSpec:
        return TensorSpec(tuple([convert(size) for size in old.shape]), old.dtype)

    return OpNode(
        index=node.index,
        name=node.name,
        target=node.target,
        kind=node.kind,
        module=node.module,
        sources=node.sources,
        input_specs=tuple([spec(old) for old in node.input_specs]),
        output_specs=tuple([spec(old) for old in node.output_specs]),
        attrs={name: _mapped(value, convert) for name, value in node.attrs.items()},
        needs_grad=node.needs_grad,
        differentiable=node.differentiable,
        region=node.region,
        autocast=node.autocast,
    )


def map_integers(graph: Graph, convert: Callable[[int], int], batch_size: int) -> Graph:
    """Rebuilds a graph with every integer that could depend on the batch converted."""
    nodes = tuple(map_node(node, convert) for node in graph.nodes)
    inputs = {
        name: TensorSpec(tuple(convert(size) for size in spec.shape), spec.dtype)
        for name, spec in graph.inputs.items()
    }
    return graph.replace(nodes=nodes, inputs=inputs, batch_size=batch_size)


def from_marker(batch_size: int) -> Callable[[int], int]:
    """How an integer of a graph traced at `BATCH_MARKER` changes to a batch size."""

    def convert(value: int) -> int:
        if value == 0 or value % BATCH_MARKER:
            return value
        count, power = value, 0
        while count % BATCH_MARKER == 0:
            count //= BATCH_MARKER
            power += 1
        return int(count * batch_size**power)

    return convert


def _at(first: tuple[int, int], second: tuple[int, int], batch_size: int) -> int:
    """The integer at `batch_size`, from its values at two batch sizes."""
    (size_a, a), (size_b, b) = first, second
    if a == b:
        return a
    for power in (1, 2):
        if a % size_a**power == 0 and a // size_a**power * size_b**power == b:
            return int(a // size_a**power * batch_size**power)
    slope, rest = divmod(b - a, size_b - size_a)
    if rest or slope < 0:
        raise TraceError(
            f"a size of the model is {a} at batch {size_a} and {b} at batch {size_b}: it does "
            f"not grow linearly with the batch; trace the model again at batch {batch_size}"
        )
    return a + slope * (batch_size - size_a)


def _second_trace(graph: GraphData) -> tuple[int, tuple[int, ...]]:
    """Another batch size, and the integers of the graph at it."""
    if graph.retrace is None:
        raise TraceError(
            f"this graph was stored at batch {graph.batch_size} without a second trace; trace the "
            f"model at the batch size you need, or at batch {BATCH_MARKER} for any size"
        )
    other = BATCH_MARKER if graph.batch_size != BATCH_MARKER else SECOND_PROBE
    if graph.meta.get("recorded_run"):
        # the second trace is a real run as well, so a small one
        other = 2 * graph.batch_size
    second = graph.retrace(other)
    if [n.target for n in second.nodes] != [n.target for n in graph.nodes]:
        raise TraceError(
            f"the model runs other operators at batch {other} than at batch {graph.batch_size}; "
            "trace it again at the batch size you need"
        )
    return other, _integers(second)


def _integers(graph: GraphData) -> tuple[int, ...]:
    """Every integer that could depend on the batch, in the order in which they are converted."""
    found: list[int] = []

    def keep(value: int) -> int:
        found.append(value)
        return value

    map_integers(graph, keep, graph.batch_size)
    return tuple(found)


def rescale(graph: Graph, batch_size: int) -> Graph:
    """The graph at another batch size, with the second trace that told how sizes grow.

    A graph traced at `BATCH_MARKER` needs none. A size that is neither constant, linear nor
    quadratic in the batch raises `TraceError`.
    """
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise TraceError(f"batch size must be a whole number of at least 1, not {batch_size!r}")
    if batch_size == graph.batch_size:
        return graph
    if graph.batch_size < 1:
        raise TraceError("the model's inputs have no common first dimension to call the batch")
    if graph.batch_size == BATCH_MARKER and graph.probe is None:
        return map_integers(graph, from_marker(batch_size), batch_size)
    probe = graph.probe or _second_trace(graph)
    other, values = probe
    stream = iter(values)

    def convert(value: int) -> int:
        return _at((graph.batch_size, value), (other, next(stream)), batch_size)

    return map_integers(graph, convert, batch_size).replace(probe=probe)
