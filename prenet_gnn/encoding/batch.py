"""Joins encoded graphs and their workloads into one batch for the network."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from prenet_gnn.encoding.device import RUN
from prenet_gnn.encoding.encode import TOTALS, Encoded
from prenet_gnn.workload.frameworks import is_foreach
from prenet_gnn.workload.optimizers import OPTIMIZERS
from prenet_gnn.workload.workload import Workload

# A foreach kernel takes this many tensors at a time (multi_tensor_apply's limit is near it).
FOREACH_TENSORS = 30
# Sources of operators timed alone: each adds its own launch and synchronisation to every time.
FLOORS = (
    "neusight", "vidur", "eleutherai-sizing", "deepbench", "mamf", "ml-performance-prediction",
)  # fmt: skip
COMPILED, IS_CPU = RUN.index("compiled"), RUN.index("is_cpu")
CHANNELS_LAST, LAYOUT = RUN.index("channels_last"), TOTALS.index("compiles_to_channels_last")
PHASE_INDEX = ("forward", "loss", "backward", "optimizer", "zero_grad", "h2d", "data_loading")


@dataclass(frozen=True)
class Sample:
    """One row: an encoded graph, how it runs, where, and which latents it belongs to.

    `device` and `run` are the vectors of `encoding.device`; latent indices are 0 for a device or
    host that training has not seen. `floor` is 0 for an iteration, else the source that timed one
    operator alone (position in `FLOORS`, from 1).
    """

    encoded: Encoded
    device: np.ndarray
    run: np.ndarray
    workload: Workload
    device_latent: int = 0
    host_latent: int = 0
    framework_latent: int = 0
    floor: int = 0


@functools.cache
def phases_vector(workload: Workload) -> np.ndarray:
    """`(7,)` flags in the order of `PHASE_INDEX`: which phases are summed."""
    chosen = set(workload.phases)
    return np.array([float(name in chosen) for name in PHASE_INDEX], dtype=np.float32)


def step_vector(encoded: Encoded, workload: Workload) -> np.ndarray:
    """`(5,)`: optimizer bytes and kernels, zero_grad bytes and kernels, bytes of the batch."""
    tensors, numel = encoded.totals[0], encoded.totals[1]
    foreach = is_foreach(workload.framework_version)
    optimizer = OPTIMIZERS[workload.optimizer]
    groups = np.ceil(tensors / FOREACH_TENSORS) if foreach else tensors
    item = {"fp16": 2, "bf16": 2, "fp64": 8}.get(workload.precision, 4)
    moved = optimizer.passes * numel * item
    # Gradients are freed, not zeroed, where the optimizer is foreach
    zero = 0.0 if foreach else 1.0
    kernels = optimizer.kernels * groups
    return np.array([moved, kernels, zero * numel * item, zero * tensors, encoded.totals[3]])


def _run(sample: Sample) -> np.ndarray:
    """How a graph is run, in the layout that a compiler chooses on a GPU."""
    run = sample.run
    if not run[COMPILED] or run[IS_CPU] or not sample.encoded.totals[LAYOUT]:
        return run
    run = run.copy()
    run[CHANNELS_LAST] = 1.0
    return run


def collate(samples: Sequence[Sample]) -> Data:
    """Joins samples; those with the same encoded graph share its calls.

    Returns:
        A `torch_geometric.data.Data`. Of the N calls of the distinct graphs: `x (N, WIDTH)`,
        `operator (N,)`, `work (N, 8)`, `count (N,)`, `edge_index (2, E)`, `edge_attr (E, 3)`. Of
        the G samples with M calls in all: `take (M,)`, the call each of them is, `batch (M,)`, the
        sample it belongs to, and `device (G, 16)`, `run (G, 18)`, `phases (G, 7)`, `step (G, 5)`,
        `views (G,)`, `latents (G, 3)`, `floor (G,)`.
    """
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
    take = np.arange(counts.sum()) + np.repeat(starts[which] - offsets, counts)

    def graph(rows: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.stack(rows).astype(np.float32))

    latents = [[s.device_latent, s.host_latent, s.framework_latent] for s in samples]
    return Data(
        x=torch.from_numpy(np.concatenate([g.numbers for g in graphs])),
        operator=torch.from_numpy(np.concatenate([g.operators for g in graphs])),
        work=torch.from_numpy(np.concatenate([g.work for g in graphs])).float(),
        count=torch.from_numpy(np.concatenate([g.counts for g in graphs])).float(),
        edge_index=torch.from_numpy(np.concatenate(edges, axis=1)),
        edge_attr=torch.from_numpy(np.concatenate([g.edge_numbers for g in graphs])),
        take=torch.from_numpy(take),
        batch=torch.from_numpy(np.repeat(np.arange(len(samples)), counts)),
        device=graph([s.device for s in samples]),
        run=graph([_run(s) for s in samples]),
        phases=graph([phases_vector(s.workload) for s in samples]),
        step=graph([step_vector(s.encoded, s.workload) for s in samples]),
        views=torch.tensor([float(s.encoded.totals[4]) for s in samples]),
        latents=torch.tensor(latents, dtype=torch.int64),
        floor=torch.tensor([s.floor for s in samples], dtype=torch.int64),
        num_nodes=int(sizes.sum()),
    )
