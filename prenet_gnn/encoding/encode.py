"""Encodes a graph at one batch size as arrays for the network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from prenet_gnn.encoding.fields import describe, operator_index
from prenet_gnn.encoding.fusion import fused_traffic
from prenet_gnn.encoding.layout import compiles_to_channels_last
from prenet_gnn.encoding.precision import parameter_bytes
from prenet_gnn.encoding.template import Template
from prenet_gnn.encoding.work import strided_extra, work_of
from tracing.graph.batch_size import from_marker, map_node

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracing import OpGraph

# Totals of a graph that are no property of a single call.
TOTALS = (
    "trainable_tensors", "trainable_numel", "parameter_bytes", "input_bytes", "view_calls", "batch",
    "compiles_to_channels_last",
)  # fmt: skip


@dataclass(frozen=True)
class Encoded:
    """A graph under one precision policy at one batch size.

    Shapes:
        `numbers` `(U, WIDTH)`, `operators` `(U,)`, `work` `(U, 8)` (see `encoding.work`), `counts`
        `(U,)`, `edges` `(2, E)`, `edge_numbers` `(E, 3)`, `totals` `(7,)`; U distinct calls.
    """

    numbers: np.ndarray
    operators: np.ndarray
    work: np.ndarray
    counts: np.ndarray
    edges: np.ndarray
    edge_numbers: np.ndarray
    totals: np.ndarray


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
    strided = [plain.strided for plain, _ in template.formats]
    each = [work_of(n, low, flag) for (n, low), flag in zip(pairs, strided, strict=True)]
    work = np.stack(each) if each else np.zeros((0, 8))
    numbers = [
        describe(
            n,
            low,
            lies,
            w[0] + w[1],
            w[2] + w[3],
            fused_traffic(n, low, fusion, w[2], strided_extra(n, low)[0] if flag else 0.0),
        )
        for (n, low), lies, w, fusion, flag in zip(
            pairs, template.formats, work, template.fusion, strided, strict=True
        )
    ]
    sizes = np.array([_out_bytes(n.output.numel, low.item_out) for n, low in pairs])
    edge_numbers = np.zeros((template.edges.shape[1], 3), dtype=np.float32)
    if edge_numbers.size:
        edge_numbers[:, :2] = template.edge_weight
        edge_numbers[:, 2] = np.log2(1.0 + sizes[template.edges[0]]) / 16.0
    return Encoded(
        numbers=np.stack(numbers) if numbers else np.zeros((0, 0), dtype=np.float32),
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
    return np.array(
        [
            len(trained),
            sum(p.spec.numel for p in trained),
            parameter_bytes(graph.parameters, precision),
            inputs,
            template.views,
            batch_size,
            compiles_to_channels_last(graph),
        ],
        dtype=np.float64,
    )
