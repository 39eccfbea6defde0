"""Which rows and operators every step of a fit takes."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from prenet_gnn.encoding.batch import Sample
from prenet_gnn.encoding.latents import Latents
from prenet_gnn.training.parallel import own_share
from prenet_gnn.training.rows import Rows
from prenet_gnn.training.train_config import TrainConfig


class DrawnOperators(NamedTuple):
    """Operators of a step that were timed alone: this process's share of `drawn` of them."""

    samples: list[Sample]
    seconds: Tensor
    hidden: Tensor
    drawn: int


class OperatorDraws:
    """Draws operators that were timed alone."""

    def __init__(self, rows: Rows, latents: Latents, config: TrainConfig) -> None:
        """Takes the rows to draw from."""
        self.rows, self.size = rows, config.operators_per_step
        self.hide = config.latent_dropout
        self.chance = rows.weight / rows.weight.sum()
        self.sample = functools.cache(lambda i: rows.sample(i, latents))

    def draw(self, fabric: Any, rng: np.random.Generator) -> DrawnOperators:
        """A fresh draw."""
        drawn = rng.choice(len(self.rows), size=self.size, p=self.chance)
        mine = own_share(fabric, len(drawn))
        seconds = torch.from_numpy(self.rows.seconds[drawn[mine]]).float()
        hidden = hidden_rows(self.hide, mine, len(drawn))
        return DrawnOperators(
            [self.sample(int(i)) for i in drawn[mine]], seconds, hidden, len(drawn)
        )


def hidden_rows(share: float, mine: np.ndarray, rows: int) -> Tensor:
    """Which of `mine` of the step's rows see no latents: `(len(mine),)`."""
    return torch.rand(rows)[mine] < share


class Clusters:
    """Rows of one encoded graph, which are drawn in company."""

    def __init__(self, rows: Rows, train: np.ndarray, size: int) -> None:
        """Sorts the rows of `train` by their graphs; `size` is the largest company."""
        place: dict[Any, list[int]] = {}
        for i in train:
            place.setdefault(rows.keys[int(i)], []).append(int(i))
        self.members = [np.array(found) for found in place.values()]
        self.chances = [rows.weight[found] / rows.weight[found].sum() for found in self.members]
        self.sizes = np.minimum([len(found) for found in self.members], size)
        total = np.array([rows.weight[found].sum() for found in self.members])
        # a graph whose rows come in twos is drawn half as often
        self.chance = total / self.sizes
        self.chance /= self.chance.sum()

    def draw(self, rng: np.random.Generator, count: int) -> list[np.ndarray]:
        """Companies of about `count` rows in all."""
        graphs = max(1, round(count / float(self.chance @ self.sizes)))
        drawn = rng.choice(len(self.members), size=graphs, p=self.chance)
        return [
            rng.choice(self.members[g], size=self.sizes[g], replace=False, p=self.chances[g])
            for g in drawn
        ]


def draw_steps(
    rng: np.random.Generator,
    rows: Rows,
    train: np.ndarray,
    clusters: Clusters | None,
    config: TrainConfig,
) -> list[tuple[np.ndarray, Tensor]]:
    """The steps of an epoch: rows, and how much each counts."""
    if clusters is None:
        order = rng.permutation(train)
        weight = rows.weight[order]
    else:
        order = np.concatenate(clusters.draw(rng, config.rows_per_epoch))
        weight = np.ones(len(order))
    steps = math.ceil((config.rows_per_epoch or len(train)) / config.batch_size)
    parts = np.array_split(np.arange(len(order)), steps)
    return [(order[p], torch.from_numpy(weight[p]).float()) for p in parts if len(p)]
