"""Joins encoded graphs and their workloads into one batch for the network."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from prenet_gnn.features.encode import Encoded
from prenet_gnn.workload import Workload

# Float32 tensors that one optimizer step reads and writes per parameter: weight and gradient read,
# weight written (SGD); momentum read and written too; two moments for Adam (Kingma & Ba 2015).
OPTIMIZER_PASSES = {"none": 0, "sgd": 3, "sgd_momentum": 5, "adam": 7, "adamw": 7}
# Kernels per parameter tensor when the optimizer loops over tensors (before foreach, PyTorch 2.0).
OPTIMIZER_KERNELS = {"none": 0, "sgd": 1, "sgd_momentum": 3, "adam": 8, "adamw": 9}
# A foreach kernel takes this many tensors at a time (multi_tensor_apply's limit is near it).
FOREACH_TENSORS = 30
FOREACH_SINCE = (2, 0)
PHASE_INDEX = ("forward", "loss", "backward", "optimizer", "zero_grad", "h2d", "data_loading")


@dataclass(frozen=True)
class Sample:
    """One row: an encoded graph, how it runs, where, and which latents it belongs to.

    `device` and `run` are the vectors of `model.device`; the latent indices are 0 for a device or
    host that training has not seen.
    """

    encoded: Encoded
    device: np.ndarray
    run: np.ndarray
    workload: Workload
    device_latent: int = 0
    host_latent: int = 0
    framework_latent: int = 0


@functools.cache
def phases_vector(workload: Workload) -> np.ndarray:
    """`(7,)` flags in the order of `PHASE_INDEX`: which phases are summed."""
    chosen = set(workload.phases)
    return np.array([float(name in chosen) for name in PHASE_INDEX], dtype=np.float32)


def step_vector(encoded: Encoded, workload: Workload) -> np.ndarray:
    """`(5,)`: optimizer bytes and kernels, zero_grad bytes and kernels, bytes of the batch."""
    tensors, numel = encoded.totals[0], encoded.totals[1]
    version = workload.framework_version
    foreach = version is None or version >= FOREACH_SINCE
    passes = OPTIMIZER_PASSES[workload.optimizer]
    kernels = OPTIMIZER_KERNELS[workload.optimizer] * (
        np.ceil(tensors / FOREACH_TENSORS) if foreach else tensors
    )
    item = {"fp16": 2, "bf16": 2, "fp64": 8}.get(workload.precision, 4)
    # Gradients are freed, not zeroed, since 2.0
    zero = 0.0 if foreach else 1.0
    return np.array(
        [passes * numel * item, kernels, zero * numel * item, zero * tensors, encoded.totals[3]]
    )


def collate(samples: Sequence[Sample]) -> Data:
    """Joins samples.

    Returns:
        A `torch_geometric.data.Data` with `x (N, WIDTH)`, `operator (N,)`, `work (N, 8)`,
        `count (N,)`, `edge_index (2, E)`, `edge_attr (E, 3)`, `batch (N,)`, and per graph `device
        (G, 14)`, `run (G, 18)`, `phases (G, 7)`, `step (G, 5)`, `views (G,)`, `latents (G, 3)`.
    """
    sizes = np.array([len(s.encoded.operators) for s in samples])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    edges = [s.encoded.edges + start for s, start in zip(samples, starts, strict=True)]

    def graph(rows: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.stack(rows).astype(np.float32))

    latents = [[s.device_latent, s.host_latent, s.framework_latent] for s in samples]
    return Data(
        x=torch.from_numpy(np.concatenate([s.encoded.numbers for s in samples])),
        operator=torch.from_numpy(np.concatenate([s.encoded.operators for s in samples])),
        work=torch.from_numpy(np.concatenate([s.encoded.work for s in samples])).float(),
        count=torch.from_numpy(np.concatenate([s.encoded.counts for s in samples])).float(),
        edge_index=torch.from_numpy(np.concatenate(edges, axis=1)),
        edge_attr=torch.from_numpy(np.concatenate([s.encoded.edge_numbers for s in samples])),
        batch=torch.from_numpy(np.repeat(np.arange(len(samples)), sizes)),
        device=graph([s.device for s in samples]),
        run=graph([s.run for s in samples]),
        phases=graph([phases_vector(s.workload) for s in samples]),
        step=graph([step_vector(s.encoded, s.workload) for s in samples]),
        views=torch.tensor([float(s.encoded.totals[4]) for s in samples]),
        latents=torch.tensor(latents, dtype=torch.int64),
        num_nodes=int(sizes.sum()),
    )
