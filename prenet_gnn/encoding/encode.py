"""Encodes a graph at one batch size as arrays for the network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from prenet_gnn.encoding.describe import describe, operator_index
from prenet_gnn.encoding.fields import EDGE, NODE, TOTALS, WORK
from prenet_gnn.encoding.fusion import fused_traffic
from prenet_gnn.encoding.layout import compiles_to_channels_last
from prenet_gnn.encoding.precision import parameter_bytes
from prenet_gnn.encoding.template import Template
from prenet_gnn.encoding.work import strided_extra, work_of
from tracing.costs.vocab import KINDS
from tracing.graph.batch_size import from_marker, map_node

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracing import OpGraph


@dataclass(frozen=True)
class Encoded:
    """A graph under one precision policy at one batch size.

    Shapes:
        `numbers (U, NODE.width)`, `operators (U,)`, `work (U, WORK.width)`, `counts (U,)`,
        `edges (2, E)`, `edge_numbers (E, EDGE.width)`, `totals (TOTALS.width,)`; U distinct calls.
    """

    numbers: np.ndarray
    operators: np.ndarray
    work: np.ndarray
    counts: np.ndarray
    edges: np.ndarray
    edge_numbers: np.ndarray
    totals: np.ndarray

    @property
    def kinds(self) -> np.ndarray:
        """Position of every distinct call's kind in `tracing.costs.vocab.KINDS`, `(U,)`."""
        found: np.ndarray = self.numbers[:, : len(KINDS)].argmax(axis=1)
        return found

    def number(self, name: str) -> np.ndarray:
        """A column of `fields.NODE`, `(U,)`."""
        found: np.ndarray = NODE.of(self.numbers, name)
        return found

    def pair(self, name: str) -> np.ndarray:
        """Work of one distinct call, forward and backward: `flops`, `bytes`, ...; `(U, 2)`."""
        found: np.ndarray = WORK.pair(self.work, name)
        return found

    def total(self, name: str) -> float:
        """A column of `fields.TOTALS`."""
        return float(TOTALS.of(self.totals, name))


def scaler(graph: OpGraph, batch_size: int) -> Callable[[int], int] | None:
    """How integers of a marker graph change to a batch size; None where nothing changes."""
    from tracing import BATCH_MARKER

    if batch_size == graph.batch_size:
        return None
    if graph.batch_size != BATCH_MARKER or graph.probe is not None:
        raise ValueError("templates are scaled from graphs at the batch marker only")

    return from_marker(batch_size)


def encode(template: Template, batch_size: int, precision: str) -> Encoded:
    """Encodes the distinct calls of a template.

    Args:
        template: From `build_template`, of a graph at `batch_size` or at the batch marker.
        batch_size: Samples per iteration.
        precision: Decides how weights are stored.
    """
    convert = scaler(template.graph, batch_size)
    nodes = [map_node(n, convert) if convert else n for n in template.nodes]
    pairs = list(zip(nodes, template.lowered, strict=True))
    strided = [plain.strided for plain, _ in template.memory_formats]
    each = [work_of(n, low, flag) for (n, low), flag in zip(pairs, strided, strict=True)]
    work = np.stack(each) if each else np.zeros((0, WORK.width))
    numbers = [
        describe(
            n,
            low,
            lies,
            WORK.pair(w, "flops").sum(),
            WORK.pair(w, "bytes").sum(),
            fused_traffic(
                n,
                low,
                fusion,
                WORK.of(w, "forward_bytes"),
                strided_extra(n, low)[0] if flag else 0.0,
            ),
        )
        for (n, low), lies, w, fusion, flag in zip(
            pairs, template.memory_formats, work, template.fusion, strided, strict=True
        )
    ]
    sizes = np.array([_out_bytes(n.output.numel, low.item_out) for n, low in pairs])
    edge_numbers = np.zeros((template.edges.shape[1], EDGE.width), dtype=np.float32)
    if edge_numbers.size:
        EDGE.span(edge_numbers, "into_consumer", "out_of_producer")[:] = template.edge_weight
        edge_numbers[:, EDGE.place("log_size")] = np.log2(1.0 + sizes[template.edges[0]]) / 16.0
    return Encoded(
        numbers=np.stack(numbers) if numbers else np.zeros((0, NODE.width), dtype=np.float32),
        operators=np.array([operator_index(n) for n in nodes], dtype=np.int64),
        work=work,
        counts=template.counts,
        edges=template.edges,
        edge_numbers=edge_numbers,
        totals=_totals(template, batch_size, precision, convert),
    )


def _out_bytes(numel: int, items: tuple[int, ...]) -> float:
    return float(numel * (items[0] if items else 0))


def _totals(
    template: Template, batch_size: int, precision: str, convert: Callable[[int], int] | None
) -> np.ndarray:
    graph = template.graph
    trained = [p for p in graph.parameters if p.unique and not p.is_buffer and p.requires_grad]
    inputs = sum(
        math.prod(convert(s) if convert else s for s in spec.shape)
        * spec.bytes
        // max(spec.numel, 1)
        for spec in graph.inputs.values()
    )
    return TOTALS.row(
        {
            "trainable_tensors": len(trained),
            "trainable_numel": sum(p.spec.numel for p in trained),
            "parameter_bytes": parameter_bytes(graph.parameters, precision),
            "input_bytes": inputs,
            "view_calls": template.views,
            "batch": batch_size,
            "compiles_to_channels_last": compiles_to_channels_last(graph),
        }
    )
