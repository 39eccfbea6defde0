"""Rows that ask for a time, and many of them joined as the tensors that the network takes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import torch
from torch import Tensor

from prenet_gnn.catalogue.rates import number_format
from prenet_gnn.catalogue.spec import Hardware
from prenet_gnn.encoding.device import device_vector, run_vector
from prenet_gnn.encoding.encode import Encoded
from prenet_gnn.encoding.fields import LATENTS, NUMBER_FORMATS, PHASES, RUN, STEP, TOTALS
from prenet_gnn.encoding.latents import Latents
from prenet_gnn.workload.frameworks import is_foreach
from prenet_gnn.workload.optimizers import OPTIMIZERS
from prenet_gnn.workload.workload import Workload

# Bytes of an element of weights and gradients where it is not four.
ITEM_BYTES = {"fp16": 2, "bf16": 2, "fp64": 8}


@dataclass(frozen=True)
class Sample:
    """One row: an encoded graph, how it runs, where, and which latents it belongs to.

    Attributes:
        encoded: The graph.
        device: `device.device_vector`.
        number_format: Position in `fields.NUMBER_FORMATS`.
        run: `device.run_vector`.
        workload: How it is run.
        latents: Rows of the latent tables in the order of `fields.LATENTS`; 0 for a device, host or
            framework that training has not seen.
        floor: 0 for an iteration, else the source that timed one operator alone (position in
            `fields.FLOORS`, from 1).
    """

    encoded: Encoded
    device: np.ndarray
    number_format: int
    run: np.ndarray
    workload: Workload
    latents: tuple[int, int, int] = (0, 0, 0)
    floor: int = 0


def make_sample(
    encoded: Encoded,
    hardware: Hardware,
    workload: Workload,
    names: Latents | None = None,
    floor: int = 0,
) -> Sample:
    """The row of a graph under a workload on a device.

    Args:
        encoded: The graph under the workload's precision.
        hardware: The device.
        workload: How it is run.
        names: What the latent tables hold; None for no latents.
        floor: See `Sample`.
    """
    kind = number_format(hardware, workload.precision)
    return Sample(
        encoded=encoded,
        device=device_vector(hardware, workload.precision),
        number_format=NUMBER_FORMATS.index(kind),
        run=run_vector(workload, hardware),
        workload=workload,
        latents=names.of(hardware.name, kind, workload) if names is not None else (0, 0, 0),
        floor=floor,
    )


@functools.cache
def phases_vector(workload: Workload) -> np.ndarray:
    """`(PHASES.width,)` flags: which phases are summed."""
    chosen = set(workload.phases)
    return PHASES.row({name: name in chosen for name in PHASES.names}, dtype=np.float32)


def step_vector(encoded: Encoded, workload: Workload) -> np.ndarray:
    """`(STEP.width,)`: what an optimizer step and what surrounds it moves and launches."""
    tensors = TOTALS.of(encoded.totals, "trainable_tensors")
    foreach = is_foreach(workload.framework_version)
    optimizer = OPTIMIZERS[workload.optimizer]
    numel = TOTALS.of(encoded.totals, "trainable_numel")
    item_bytes = ITEM_BYTES.get(workload.precision, 4)
    weights = numel * item_bytes
    # Gradients are freed, not zeroed, where the optimizer is foreach
    zeroed = 0.0 if foreach else 1.0
    return STEP.row(
        {
            "optimizer_bytes": optimizer.moved_bytes(numel, item_bytes),
            "optimizer_kernels": optimizer.launches(tensors, foreach),
            "zero_grad_bytes": zeroed * weights,
            "zero_grad_kernels": zeroed * tensors,
            "input_bytes": TOTALS.of(encoded.totals, "input_bytes"),
        }
    )


# What a tensor of a batch has a row for.
CALL, EDGE, CALL_OF_ROW, ROW = ({"per": each} for each in ("call", "edge", "call of row", "row"))


@dataclass(frozen=True)
class GraphBatch:
    """N distinct calls with E edges, as G rows run them in M calls.

    Rows of one graph share its calls. Columns are named in `encoding.fields`.

    Shapes:
        `numbers (N, NODE.width)`, `operator (N,)`, `work (N, WORK.width)`, `count (N,)`;
        `edge_index (2, E)`, `edge_numbers (E, EDGE.width)`; `call (M,)`, which of the N each of the
        M is, and `row (M,)`, which of the G it belongs to; `device (G, DEVICE.width)`,
        `number_format (G,)`, `run (G, RUN.width)`, `phases (G, PHASES.width)`,
        `step (G, STEP.width)`, `views (G,)`, `latents (G, LATENTS.width)`, `floor (G,)`.
    """

    numbers: Tensor = field(metadata=CALL)
    operator: Tensor = field(metadata=CALL)
    work: Tensor = field(metadata=CALL)
    count: Tensor = field(metadata=CALL)
    edge_index: Tensor = field(metadata=EDGE)
    edge_numbers: Tensor = field(metadata=EDGE)
    call: Tensor = field(metadata=CALL_OF_ROW)
    row: Tensor = field(metadata=CALL_OF_ROW)
    device: Tensor = field(metadata=ROW)
    number_format: Tensor = field(metadata=ROW)
    run: Tensor = field(metadata=ROW)
    phases: Tensor = field(metadata=ROW)
    step: Tensor = field(metadata=ROW)
    views: Tensor = field(metadata=ROW)
    latents: Tensor = field(metadata=ROW)
    floor: Tensor = field(metadata=ROW)

    @property
    def rows(self) -> int:
        """How many rows there are, G."""
        return len(self.device)

    def only(self, rows: Tensor) -> GraphBatch:
        """The batch with some of its rows; `rows (G,)` tells which. All distinct calls stay."""
        kept = {"row": rows, "call of row": rows[self.row]}
        values = {
            each.name: getattr(self, each.name)[kept[each.metadata["per"]]]
            for each in fields(self)
            if each.metadata["per"] in kept
        }
        # rows are numbered anew
        values["row"] = (torch.cumsum(rows.long(), dim=0) - 1)[values["row"]]
        return replace(self, **values)

    def without_latents(self, rows: Tensor) -> GraphBatch:
        """The batch in which some rows, `rows (G,)`, see no latents."""
        latents = torch.where(rows[:, None], torch.zeros_like(self.latents), self.latents)
        return replace(self, latents=latents)


def _layout(sample: Sample) -> np.ndarray:
    """How a graph is run, in the layout that a compiler chooses on a GPU."""
    run, totals = sample.run, sample.encoded.totals
    turns = RUN.of(run, "compiled") and not RUN.of(run, "is_cpu")
    if not turns or not TOTALS.of(totals, "compiles_to_channels_last"):
        return run
    run = run.copy()
    run[RUN.place("channels_last")] = 1.0
    return run


def collate(samples: Sequence[Sample]) -> GraphBatch:
    """Joins samples; those with the same encoded graph share its calls."""
    place: dict[int, tuple[int, Encoded]] = {}
    for sample in samples:
        place.setdefault(id(sample.encoded), (len(place), sample.encoded))
    graphs = [encoded for _, encoded in place.values()]
    sizes = np.array([len(g.operators) for g in graphs])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    edges = [g.edges + start for g, start in zip(graphs, starts, strict=True)]
    which = np.array([place[id(s.encoded)][0] for s in samples])
    counts = sizes[which]
    offsets = np.cumsum(counts) - counts

    def rows(values: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.stack(values).astype(np.float32))

    def joined(values: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.concatenate(values))

    return GraphBatch(
        numbers=joined([g.numbers for g in graphs]),
        operator=joined([g.operators for g in graphs]),
        work=joined([g.work for g in graphs]).float(),
        count=joined([g.counts for g in graphs]).float(),
        edge_index=torch.from_numpy(np.concatenate(edges, axis=1)),
        edge_numbers=joined([g.edge_numbers for g in graphs]),
        call=torch.from_numpy(np.arange(counts.sum()) + np.repeat(starts[which] - offsets, counts)),
        row=torch.from_numpy(np.repeat(np.arange(len(samples)), counts)),
        device=rows([s.device for s in samples]),
        number_format=torch.tensor([s.number_format for s in samples], dtype=torch.int64),
        run=rows([_layout(s) for s in samples]),
        phases=rows([phases_vector(s.workload) for s in samples]),
        step=rows([step_vector(s.encoded, s.workload) for s in samples]),
        views=torch.tensor([TOTALS.of(s.encoded.totals, "view_calls") for s in samples]).float(),
        latents=torch.tensor([s.latents for s in samples], dtype=torch.int64),
        floor=torch.tensor([s.floor for s in samples], dtype=torch.int64),
    )


assert LATENTS.names == ("device", "host", "framework")  # the order of `Latents.of`
