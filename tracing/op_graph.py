"""The graph that users hold: its data, and one method for every cost and view of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tracing.costs import totals
from tracing.costs.node import NodeCost
from tracing.costs.storages import saved_bytes
from tracing.graph.batch_size import rescale
from tracing.graph.data import GraphData
from tracing.views.json import from_json, to_json
from tracing.views.networkx import to_networkx
from tracing.views.page import summary_html

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True, repr=False)
class OpGraph(GraphData):
    """A model's forward pass as a graph of operators; see `GraphData` for its fields."""

    def __repr__(self) -> str:
        """One line with the totals."""
        return (
            f"OpGraph({self.name}, {len(self.nodes)} ops, "
            f"batch {self.batch_size}, {self.mode}, {self.total_flops / 1e9:.2f} GFLOP forward, "
            f"{self.total_params / 1e6:.2f} M parameters)"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: the table by module; `tracing.views` has more."""
        return summary_html(self)

    @cached_property
    def node_costs(self) -> tuple[NodeCost, ...]:
        """Cost of every node, parallel to `nodes`; recomputed calls are billed once here."""
        return totals.node_costs(self)

    def costs(self) -> dict[str, list[int]]:
        """Costs as columns, one entry per node.

        Returns:
            Columns `forward_flops`, `backward_flops`, `forward_bytes`, `backward_bytes` and
            `elementwise_ops`.
        """
        return totals.columns(self.node_costs)

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
        return totals.recomputed_flops(self, self.node_costs)

    @property
    def total_elementwise_ops(self) -> int:
        """Pointwise and reduction arithmetic of the forward pass."""
        return sum(cost.elementwise_ops for cost in self.node_costs)

    @cached_property
    def saved_bytes(self) -> int:
        """Bytes that live from the forward to the backward pass, each storage once.

        Views count as what they look at; parameters and buffers do not count; a checkpointed
        region keeps its inputs alone. What a GPU keeps; see `tracing.costs.timeline` for the CPU.
        """
        return saved_bytes(self)

    @property
    def unknown_ops(self) -> dict[str, int]:
        """Operators without a cost formula and how often each is called."""
        return totals.unknown_ops(self)

    def by_module(self, depth: int = 2) -> dict[str, NodeCost]:
        """Costs summed over module paths cut to `depth` names."""
        cut = [".".join(node.module.split(".")[:depth]) for node in self.nodes]
        return totals.grouped(self.node_costs, cut)

    def by_operator(self) -> dict[str, NodeCost]:
        """Costs summed over operator overloads."""
        return totals.grouped(self.node_costs, [node.target for node in self.nodes])

    def with_batch_size(self, batch_size: int) -> OpGraph:
        """The same graph at another batch size.

        Sizes are interpolated between this graph and a second trace of the model at another
        batch size (made once, when first needed, and stored with the graph). A graph traced at
        `BATCH_MARKER` needs no second trace. A size that is neither constant, linear nor quadratic
        in the batch raises `TraceError`.
        """
        scaled = rescale(self, batch_size)
        if self.probe is None:
            object.__setattr__(self, "probe", scaled.probe)
        return scaled

    def to_networkx(self) -> networkx.MultiDiGraph[int]:
        """A networkx graph: node attributes are costs and shapes, edge attributes tensor sizes."""
        return to_networkx(self)

    def to_json(self, path: str | Path | None = None) -> str:
        """The graph as JSON text, also written to `path` (gzip-compressed if it ends in .gz)."""
        return to_json(self, path)

    @classmethod
    def from_json(cls, source: str | Path) -> OpGraph:
        """Reads a graph from JSON text or from the file that `to_json` wrote."""
        return from_json(source, cls)
