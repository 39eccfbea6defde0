"""How far a graph lies from those that the weights were trained on.

A graph is summed up by where its time would go on a typical device, by its size and by the shapes
of its products. The distance to the nearest of some hundred graphs of the training rows, spread out
over all of them, is compared with the distances between families of training: beyond what most
families are from all others, a graph counts as outside.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from prenet_gnn.encoding.fields import NODE, TOTALS, WORK
from prenet_gnn.network.interval import ZONES
from tracing.costs.vocab import KINDS

if TYPE_CHECKING:
    from prenet_gnn.encoding.encode import Encoded

# A typical device: FLOP and bytes per second, seconds per kernel. They only weigh calls.
FLOPS_PER_S, BYTES_PER_S, KERNEL_S = 2e13, 8e11, 3e-6
# Columns of the calls whose cost-weighted share, and whose cost-weighted mean, are taken.
FLAGS = ("is_depthwise", "is_grouped")
SHAPES = ("log_rows", "log_cols", "log_inner", "log_kernel")
SHARES = len(KINDS) + len(FLAGS)
# A share of one counts as much as so many standard deviations of the other numbers.
SHARE_SCALE = 6.0
REFERENCES = 800
# Share of the training graphs that are nearer to another family than the limit.
NEAR_SHARE = 0.75
# Up to this distance, in units of the limit, a graph is as near as most of the families that
# training has seen; intervals are half as wide as further off (`python -m experiments.outside`).
NEAR = 0.55
# References are kept in one byte per number, in steps of this size.
STEP = 0.06


def summary(encoded: Encoded) -> np.ndarray:
    """What a graph is like, `(SHARES + 8,)`; no device enters."""
    work, counts, numbers = encoded.work, encoded.counts, encoded.numbers
    flops, moved, kernels = (WORK.pair(work, n).sum(axis=1) for n in ("flops", "bytes", "kernels"))
    cost = counts * (flops / FLOPS_PER_S + moved / BYTES_PER_S + kernels * KERNEL_S)
    cost = cost / max(float(cost.sum()), 1e-30)

    def column(name: str) -> np.ndarray:
        found: np.ndarray = NODE.of(numbers, name).astype(np.float64)
        return found

    shares = np.bincount(encoded.kinds, weights=cost, minlength=len(KINDS))
    flags = [float(cost @ (column(name) > 0)) for name in FLAGS]
    flops_log, bytes_log, kernels_log = (
        float(np.log1p(counts @ WORK.of(work, f"forward_{name}")))
        for name in ("flops", "bytes", "kernels")
    )
    batch = float(np.log1p(TOTALS.of(encoded.totals, "batch")))
    shapes = [float(cost @ column(name)) for name in SHAPES]
    sizes = [flops_log - bytes_log, bytes_log, kernels_log, batch]
    return np.concatenate([np.sqrt(np.maximum([*shares, *flags], 0.0)), sizes, shapes])


@dataclass(frozen=True)
class Seen:
    """The graphs of training, in short.

    Attributes:
        center: Mean of the numbers, `(D,)`; 0 for shares.
        scale: What they are multiplied by, `(D,)`.
        references: Graphs spread out over all of training, `(R, D)`, scaled.
        limit: Distance from which a graph counts as outside.
    """

    center: np.ndarray
    scale: np.ndarray
    references: np.ndarray
    limit: float

    def distance(self, encoded: Encoded) -> float:
        """Distance to the nearest reference over the limit: above 1 is outside."""
        return float(self.distances(summary(encoded)[None])[0])

    def distances(self, summaries: np.ndarray) -> np.ndarray:
        """The same for many summaries, `(N,)`."""
        points = (summaries - self.center) * self.scale
        return nearest(points, self.references) / self.limit

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a checkpoint's description."""
        steps = np.clip(np.round(self.references / STEP), -127, 127).astype(np.int8)
        return {
            "center": [round(float(value), 4) for value in self.center],
            "scale": [round(float(value), 4) for value in self.scale],
            "references": base64.b64encode(steps.tobytes()).decode(),
            "limit": round(self.limit, 4),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Seen:
        """Reads what `to_dict` gave.

        Raises:
            ValueError: The parts do not belong together.
        """
        center, scale = (np.asarray(data[name], dtype=np.float64) for name in ("center", "scale"))
        steps = np.frombuffer(base64.b64decode(data["references"], validate=True), dtype=np.int8)
        limit = float(data["limit"])
        if (
            len(center) != SHARES + 8
            or len(scale) != len(center)
            or not limit > 0
            or not len(steps)
        ):
            raise ValueError("the graphs seen in training are summed up in another way")
        return cls(center, scale, steps.reshape(-1, len(center)) * STEP, limit)


def zone_of(distance: float) -> str:
    """Which of `ZONES` a graph at a distance, in units of the limit, lies in."""
    return ZONES[(distance > NEAR) + (distance > 1.0)]


def nearest(points: np.ndarray, references: np.ndarray) -> np.ndarray:
    """Distance of every point to its nearest reference, `(N,)`."""
    found = np.empty(len(points))
    squares = (references**2).sum(axis=1)
    for start in range(0, len(points), 512):
        part = points[start : start + 512]
        apart = (part**2).sum(axis=1)[:, None] - 2.0 * part @ references.T + squares
        found[start : start + 512] = np.sqrt(np.maximum(apart.min(axis=1), 0.0))
    return found


def spread_out(points: np.ndarray, count: int) -> np.ndarray:
    """Positions of points of which each is as far as possible from those before it."""
    chosen = [0]
    apart = ((points - points[0]) ** 2).sum(axis=1)
    while len(chosen) < min(count, len(points)) and apart.max() > 0:
        chosen.append(int(apart.argmax()))
        apart = np.minimum(apart, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    return np.array(chosen)


def seen_graphs(summaries: np.ndarray, groups: Sequence[str]) -> Seen:
    """Sums up the graphs of training.

    Args:
        summaries: One `summary` for each graph, `(N, D)`.
        groups: The family of each.
    """
    center = np.concatenate([np.zeros(SHARES), summaries[:, SHARES:].mean(axis=0)])
    deviation = summaries[:, SHARES:].std(axis=0)
    scale = np.concatenate([np.full(SHARES, SHARE_SCALE), 1.0 / np.maximum(deviation, 1e-3)])
    points = (summaries - center) * scale
    chosen = spread_out(points, REFERENCES)
    references, names = points[chosen], np.asarray(groups)
    others = [
        nearest(points[names == name], references[names[chosen] != name])
        for name in np.unique(names)
        if (names[chosen] != name).any()
    ]
    apart = np.concatenate(others) if others else np.ones(1)
    return Seen(center, scale, references, max(float(np.quantile(apart, NEAR_SHARE)), 1e-6))
