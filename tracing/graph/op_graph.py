"""A model's forward pass as a graph of operators, with the cost of every call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracing.costs.node import NodeCost, node_cost
from tracing.errors import TraceError
from tracing.graph.specs import Edge, OpNode, ParamSpec, Source, TensorSpec

if TYPE_CHECKING:
    import networkx

# Version of everything a stored graph depends on; raise it when tracing changes.
TRACER_VERSION = "2"
# A prime no layer width is a multiple of: in a graph traced at this batch size every multiple of
# it is proportional to the batch, so `with_batch_size` needs no second trace.
BATCH_MARKER = 2053


@dataclass(frozen=True)
class OpGraph:
    """All operator calls of one forward pass (and loss) in a topological order.

    Attributes:
        nodes: Operator calls.
        parameters: Parameters and buffers; a second name of one tensor is kept, not `unique`.
        inputs: Tensors the model is called with, by name.
        outputs: Which tensors leave the graph.
        batch_size: Size of the batch dimension the graph holds, 0 when there is none.
        mode: `train` or `infer`.
        meta: Facts about the trace: `model`, `torch`, `tracer`, `attention`, `unknown_ops`, ...
        probe: Integers of the same graph at another batch size, see `with_batch_size`.
    """

    nodes: tuple[OpNode, ...]
    parameters: tuple[ParamSpec, ...] = ()
    inputs: dict[str, TensorSpec] = field(default_factory=dict)
    outputs: tuple[Source, ...] = ()
    batch_size: int = 0
    mode: str = "train"
    meta: dict[str, Any] = field(default_factory=dict)
    probe: tuple[int, tuple[int, ...]] | None = None
    retrace: Callable[[int], OpGraph] | None = field(default=None, compare=False, repr=False)

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

    def __repr__(self) -> str:
        """One line with the totals."""
        return (
            f"OpGraph({self.meta.get('model', 'model')}, {len(self.nodes)} ops, "
            f"batch {self.batch_size}, {self.mode}, {self.total_flops / 1e9:.2f} GFLOP forward, "
            f"{self.total_params / 1e6:.2f} M parameters)"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: the table by module, `tracing.views.table` has more."""
        from tracing.views.page import summary_html

        return summary_html(self)

    @cached_property
    def node_costs(self) -> tuple[NodeCost, ...]:
        """Cost of every node, parallel to `nodes`; recomputed calls are billed once here."""
        return tuple(node_cost(node) for node in self.nodes)

    def costs(self) -> dict[str, list[int]]:
        """Costs as columns, one entry per node.

        Returns:
            Columns `forward_flops`, `backward_flops`, `forward_bytes`, `backward_bytes` and
            `elementwise_ops`.
        """
        columns = ("forward_flops", "backward_flops", "forward_bytes", "backward_bytes")
        names = (*columns, "elementwise_ops")
        return {name: [int(getattr(cost, name)) for cost in self.node_costs] for name in names}

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
    def total_flops(self) -> int:
        """Forward FLOPs (matrix products, convolutions, attention, recurrent gates)."""
        return sum(cost.forward_flops for cost in self.node_costs)

    @property
    def total_backward_flops(self) -> int:
        """Backward FLOPs: gradients that are needed, and what checkpointing computes again."""
        return sum(cost.backward_flops for cost in self.node_costs) + self.recomputed_flops

    @property
    def recomputed_flops(self) -> int:
        """Forward FLOPs that activation checkpointing repeats in the backward pass."""
        from tracing.costs.regions import recomputed

        return sum(self.node_costs[i].forward_flops for i in recomputed(self.nodes))

    @property
    def total_elementwise_ops(self) -> int:
        """Pointwise and reduction arithmetic of the forward pass."""
        return sum(cost.elementwise_ops for cost in self.node_costs)

    @property
    def total_params(self) -> int:
        """Elements of all parameters, each tensor once however many names it has."""
        return sum(p.numel for p in self.parameters if p.unique and not p.is_buffer)

    @property
    def trainable_params(self) -> int:
        """Elements of the parameters that are trained."""
        return sum(
            p.numel for p in self.parameters if p.unique and not p.is_buffer and p.requires_grad
        )

    @property
    def total_param_bytes(self) -> int:
        """Bytes of all parameters, each tensor once."""
        return sum(p.spec.bytes for p in self.parameters if p.unique and not p.is_buffer)

    @cached_property
    def saved_bytes(self) -> int:
        """Bytes that live from the forward to the backward pass, each storage once.

        Views count as what they look at; parameters and buffers do not count; a checkpointed
        region keeps its inputs alone. What a GPU keeps; see `tracing.costs.timeline` for the CPU.
        """
        from tracing.costs.storages import saved_bytes

        return saved_bytes(self)

    @property
    def unknown_ops(self) -> dict[str, int]:
        """Operators without a cost formula and how often each is called."""
        from tracing.costs.formulas import has_formula

        listed = dict(self.meta.get("unknown_ops", {}))
        return {name: count for name, count in listed.items() if not has_formula(name)}

    def by_module(self, depth: int = 2) -> dict[str, NodeCost]:
        """Costs summed over module paths cut to `depth` names."""
        return self._grouped(lambda node: ".".join(node.module.split(".")[:depth]))

    def by_operator(self) -> dict[str, NodeCost]:
        """Costs summed over operator overloads."""
        return self._grouped(lambda node: node.target)

    def _grouped(self, key: Callable[[OpNode], str]) -> dict[str, NodeCost]:
        sums: dict[str, list[int]] = {}
        names = list(NodeCost.__dataclass_fields__)
        for node, cost in zip(self.nodes, self.node_costs, strict=True):
            row = sums.setdefault(key(node), [0] * len(names))
            for i, name in enumerate(names):
                row[i] += getattr(cost, name)
        return {group: NodeCost(*row) for group, row in sums.items()}

    def with_batch_size(self, batch_size: int) -> OpGraph:
        """The same graph at another batch size.

        Sizes are interpolated between this graph and a second trace of the model at another
        batch size (made once, when first needed, and stored with the graph). A graph traced at
        `BATCH_MARKER` needs no second trace. A size that is neither constant, linear nor quadratic
        in the batch raises `TraceError`.
        """
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise TraceError(f"batch size must be a whole number of at least 1, not {batch_size!r}")
        if batch_size == self.batch_size:
            return self
        from tracing.graph.batch_size import rescale

        return rescale(self, batch_size)

    def to_networkx(self) -> networkx.MultiDiGraph[int]:
        """A networkx graph: node attributes are costs and shapes, edge attributes tensor sizes."""
        from tracing.views.convert import to_networkx

        return to_networkx(self)

    def to_json(self, path: str | Path | None = None) -> str:
        """The graph as JSON text, also written to `path` (gzip-compressed if it ends in .gz)."""
        from tracing.views.convert import to_json

        return to_json(self, path)

    @classmethod
    def from_json(cls, source: str | Path) -> OpGraph:
        """Reads a graph from JSON text or from the file that `to_json` wrote."""
        from tracing.views.convert import from_json

        return from_json(source)

    def replace(self, **changes: Any) -> OpGraph:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def __iter__(self) -> Iterator[OpNode]:
        """The operator calls in order."""
        return iter(self.nodes)
