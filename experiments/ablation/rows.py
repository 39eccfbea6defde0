"""Rows from which a part of the input has been taken away, for the ablations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from prenet_gnn.encoding.batch import Sample
from prenet_gnn.encoding.encode import Encoded
from prenet_gnn.encoding.fields import DEVICE, EDGE, NODE, WORK
from prenet_gnn.encoding.latents import Latents
from prenet_gnn.training.rows import Rows
from prenet_gnn.training.store import Store

# Calls of a graph that a mean instead of a sum is scaled to, so that times keep their order.
MEAN_CALLS = 100.0
_RATES = ("log_peak", "log_sustained", "log_power", "log_bandwidth")
# Specifications that say nothing about a single device, as natural logarithms of SI figures of a
# mid-range card, or zero for flags.
_PLAIN = {
    "log_peak": 30.9, "log_sustained": 30.9, "log_power": 30.9, "log_bandwidth": 27.4,
    "log_multiprocessors": 4.2, "log_l2": 15.6, "log_clock": 21.2, "log_pcie": 23.5,
}  # fmt: skip


# Columns that tell how a call fills tiles and rows of an image, and what a compiler can fuse.
_TILES = (
    "pad_rows_128", "pad_cols_32", "pad_cols_128", "pad_inner_32", "log_space", "width_by_4",
    "width_by_8",
)  # fmt: skip
_FUSION = ("fused_reads", "fused_share")


def _number(encoded: Encoded, *names: str) -> np.ndarray:
    numbers = encoded.numbers.copy()
    numbers[:, [NODE.place(name) for name in names]] = 0.0
    return numbers


def _without_work(encoded: Encoded, name: str) -> Encoded:
    work = encoded.work.copy()
    WORK.pair(work, name)[:] = 0.0
    return replace(encoded, work=work, numbers=_number(encoded, "log_intensity"))


def without_flops(encoded: Encoded) -> Encoded:
    """No arithmetic (CO): neither the roofline's compute term nor the intensity."""
    return _without_work(encoded, "flops")


def without_memory(encoded: Encoded) -> Encoded:
    """No memory traffic (CM): neither the roofline's memory term nor the intensity."""
    return _without_work(encoded, "bytes")


def without_edges(encoded: Encoded) -> Encoded:
    """Calls that do not know their neighbours, under the same layers."""
    return replace(encoded, edges=encoded.edges[:, :0], edge_numbers=encoded.edge_numbers[:0])


def without_tensor_sizes(encoded: Encoded) -> Encoded:
    """Edges that do not know how large their tensors are."""
    edge_numbers = encoded.edge_numbers.copy()
    edge_numbers[:, EDGE.place("log_size")] = 0.0
    return replace(encoded, edge_numbers=edge_numbers)


def mean_readout(encoded: Encoded) -> Encoded:
    """The mean over calls in place of their sum."""
    share = MEAN_CALLS / max(float(encoded.counts.sum()), 1.0)
    return replace(encoded, counts=encoded.counts * share)


def without_tiles(encoded: Encoded) -> Encoded:
    """Calls whose tiles and image rows are unknown."""
    return replace(encoded, numbers=_number(encoded, *_TILES))


def without_fusion(encoded: Encoded) -> Encoded:
    """Calls that do not know what a compiler can fuse."""
    return replace(encoded, numbers=_number(encoded, *_FUSION))


GRAPH_CHANGES = {
    "flops": without_flops,
    "memory": without_memory,
    "edges": without_edges,
    "tensor sizes": without_tensor_sizes,
    "mean": mean_readout,
    "tiles": without_tiles,
    "fusion": without_fusion,
}


def plain_rates(sample: Sample) -> Sample:
    """A device whose rates are unknown: work cannot be turned into time (CT)."""
    return replace(sample, device=_with(sample.device, _RATES))


def plain_device(sample: Sample) -> Sample:
    """A device without specifications; only its latent, a one-hot code, tells it from others."""
    return replace(sample, device=_with(sample.device, tuple(_PLAIN)))


def no_source(sample: Sample) -> Sample:
    """No latents of hosts and frameworks, which take up how the sources differ."""
    return replace(sample, latents=(sample.latents[0], 0, 0))


def _with(device: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    changed = device.copy()
    for name in names:
        changed[DEVICE.place(name)] = _PLAIN[name]
    return changed


SAMPLE_CHANGES = {"rates": plain_rates, "device": plain_device, "source": no_source}


class ChangedRows(Rows):
    """Rows whose samples go through a change."""

    change: str = ""

    def sample(self, i: int, latents: Latents) -> Sample:
        """One row as the network takes it, changed."""
        return SAMPLE_CHANGES[self.change](super().sample(i, latents))


def changed_rows(rows: Rows, change: str) -> Rows:
    """The rows after a change of `GRAPH_CHANGES` or `SAMPLE_CHANGES`."""
    if not change:
        return rows
    if change in GRAPH_CHANGES:
        store = Store()
        store.entries = {
            key: GRAPH_CHANGES[change](rows.store.entries[key]) for key in set(rows.keys)
        }
        return replace(rows, store=store)
    fields = {name: getattr(rows, name) for name in rows.__dataclass_fields__}
    made = ChangedRows(**fields)
    made.change = change
    return made
