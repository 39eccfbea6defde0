"""A model's forward pass as plain data: operator calls, parameters, inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from tracing.errors import TraceError
from tracing.graph.specs import Edge, OpNode, ParamSpec, Source, TensorSpec

# Version of everything a stored graph depends on; raise it when tracing changes.
TRACER_VERSION = "2"


@dataclass(frozen=True)
class GraphData:
    """All operator calls of one forward pass (and loss) in a topological order.

    Attributes:
        nodes: Operator calls.
        parameters: Parameters and buffers; a second name of one tensor is kept, not `unique`.
        inputs: Tensors the model is called with, by name.
        outputs: Which tensors leave the graph.
        batch_size: Size of the batch dimension the graph holds, 0 when there is none.
        mode: `train` or `infer`.
        meta: Facts about the trace: `model`, `torch`, `tracer`, `attention`, `unknown_ops`, ...
        probe: Integers of the same graph at another batch size, see `tracing.graph.batch_size`.
        retrace: Traces the model at another batch size; None where the model is not at hand.
    """

    nodes: tuple[OpNode, ...]
    parameters: tuple[ParamSpec, ...] = ()
    inputs: dict[str, TensorSpec] = field(default_factory=dict)
    outputs: tuple[Source, ...] = ()
    batch_size: int = 0
    mode: str = "train"
    meta: dict[str, Any] = field(default_factory=dict)
    probe: tuple[int, tuple[int, ...]] | None = None
    retrace: Callable[[int], GraphData] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Checks that edges point backwards and at outputs that exist."""
        for position, node in enumerate(self.nodes):
            if node.index != position:
                raise TraceError(f"node '{node.name}' has index {node.index}, not {position}")
            for source in node.sources:
                if source.kind != "node":
                    continue
                if not 0 <= source.node < position:
                    raise TraceError(f"node '{node.name}' reads from {source.node}, not before it")
                if source.slot >= len(self.nodes[source.node].output_specs):
                    raise TraceError(f"node '{node.name}' reads an output that does not exist")

    def __iter__(self) -> Iterator[OpNode]:
        """The operator calls in order."""
        return iter(self.nodes)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return replace(self, **changes)

    @property
    def name(self) -> str:
        """Name of the model."""
        return str(self.meta.get("model", "model"))

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Tensors handed from one operator to another."""
        return tuple(
            Edge(source.node, node.index, spec)
            for node in self.nodes
            for source, spec in zip(node.sources, node.input_specs, strict=True)
            if source.kind == "node"
        )

    @property
    def own_parameters(self) -> tuple[ParamSpec, ...]:
        """Parameters without buffers, each tensor once however many names it has."""
        return tuple(p for p in self.parameters if p.unique and not p.is_buffer)

    @property
    def total_params(self) -> int:
        """Elements of all parameters."""
        return sum(p.numel for p in self.own_parameters)

    @property
    def trainable_params(self) -> int:
        """Elements of the parameters that are trained."""
        return sum(p.numel for p in self.own_parameters if p.requires_grad)

    @property
    def total_param_bytes(self) -> int:
        """Bytes of all parameters."""
        return sum(p.spec.bytes for p in self.own_parameters)
