"""Splits beside the joint folds: from one library, or kind of network, to another; without a chip.

A protocol holds out whole groups. What a group is follows from the rows: the family of a model, the
chip of a device, and for the kind of a network the FLOPs of its graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import numpy as np

from experiments.shared.averages import grouped
from prenet_gnn.data.families import families
from prenet_gnn.data.splits import Split, transfer, without_device
from prenet_gnn.errors import ConfigError
from tracing.costs.vocab import CONVOLUTIONS, KINDS, PRODUCTS

if TYPE_CHECKING:
    from prenet_gnn.encoding.encode import Encoded
    from prenet_gnn.training.rows import Rows

PROTOCOLS = ("torchvision-to-timm", "cnn-to-transformer")
LEAVE_OUT = "leave-out-device"
# Products of two activations: attention, as one operator or written out.
MIXING = ("attention", "matmul")
# A network is convolutional when products of activations take less than the first share of its
# FLOPs, and a transformer when they take the second or more, and convolutions less than the third.
NO_MIXING = 0.001
MUCH_MIXING = 0.01
LITTLE_CONVOLUTION = 0.1
# Patch embeddings are convolutions too; a convolutional network has more of them than that.
FEWEST_CONVOLUTIONS = 5


@dataclass(frozen=True, slots=True)
class Mix:
    """What a graph consists of.

    Attributes:
        convolution: Share of the forward FLOPs of all products that convolutions take.
        mixing: Share that products of two activations take.
        convolutions: Calls of convolutions that see more than one position.
    """

    convolution: float
    mixing: float
    convolutions: float

    @property
    def kind(self) -> str:
        """`cnn`, `transformer`, or `mixed`."""
        if self.mixing < NO_MIXING and self.convolutions >= FEWEST_CONVOLUTIONS:
            return "cnn"
        attends = self.mixing >= MUCH_MIXING and self.convolution < LITTLE_CONVOLUTION
        return "transformer" if attends else "mixed"


def mix_of(encoded: Encoded) -> Mix:
    """What one graph consists of."""
    kind, flops = encoded.kinds, encoded.pair("flops")[:, 0] * encoded.counts

    def share(names: Iterable[str]) -> float:
        return float(flops[np.isin(kind, [KINDS.index(name) for name in names])].sum())

    total = max(share(PRODUCTS), 1.0)
    # `log_kernel` of one position is log2(2) / 8
    wide = (kind == KINDS.index("conv")) & (encoded.number("log_kernel") > 0.13)
    return Mix(
        share(CONVOLUTIONS) / total, share(MIXING) / total, float(encoded.counts[wide].sum())
    )


def kinds(rows: Rows, groups: np.ndarray) -> np.ndarray:
    """`cnn` or `transformer` for rows whose graph and whose family are that, else `mixed`.

    A family is what the median over its graphs is.
    """
    graphs = [key.graph for key in rows.keys]
    first = dict(zip(reversed(graphs), reversed(rows.keys), strict=True))
    mixes = {graph: mix_of(rows.store.entries[key]) for graph, key in first.items()}
    pairs = list(zip(groups.tolist(), graphs, strict=True))
    whole = {}
    for group, some in grouped(dict.fromkeys(pairs), lambda pair: pair[0]).items():
        values = np.median([astuple(mixes[graph]) for _, graph in some], axis=0)
        whole[group] = Mix(*values.tolist()).kind
    kind = {graph: mix.kind for graph, mix in mixes.items()}
    return np.array([kind[g] if kind[g] == whole[group] else "mixed" for group, g in pairs])


def protocol(rows: Rows, name: str, device: str = "") -> Split:
    """The training and test rows of a protocol.

    Args:
        rows: All rows.
        name: One of `PROTOCOLS`, or `LEAVE_OUT`.
        device: The device to leave out, with every card of its chip.

    Raises:
        ConfigError: There is no such protocol, or no rows of the device.
        DataError: A group is on both sides.
    """
    frame = rows.frame
    if name == LEAVE_OUT:
        return without_device(frame, device)
    if name == "torchvision-to-timm":
        other = (frame["library"] != "timm").to_numpy()
        return transfer(name, frame, other, ~other)
    if name == "cnn-to-transformer":
        kind = kinds(rows, families(frame).to_numpy().astype(str))
        return transfer(name, frame, kind == "cnn", kind == "transformer")
    allowed = ", ".join((*PROTOCOLS, LEAVE_OUT))
    raise ConfigError(f"unknown protocol '{name}'. Allowed: {allowed}.")
