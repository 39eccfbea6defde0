"""Folds that hold out families, devices and random rows at once: one fit tests all three."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from prenet_gnn.data.families import families
from prenet_gnn.data.splits import chip_name

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("random", "unseen-architecture", "unseen-device", "unseen-both")
# Rows held out at random from what remains of training.
RANDOM_SHARE = 0.03


@dataclass(frozen=True)
class Fold:
    """Indices of one fold; `test` maps each of `KINDS` to its rows.

    A device is held out with every card of its chip, a family with all its models in all libraries.
    """

    train: np.ndarray
    test: dict[str, np.ndarray]
    devices: tuple[str, ...]
    families: tuple[str, ...]


def joint_fold(frame: pd.DataFrame, fold: int, folds: int = 5, seed: int = 0) -> Fold:
    """The fold number `fold` of `folds`; each family and each chip is held out in exactly one.

    Args:
        frame: Rows of `training_rows`.
        fold: From 0.
        folds: How many.
        seed: Shuffles families and chips.
    """
    rng = np.random.default_rng(seed)
    family = families(frame).to_numpy().astype(str)
    chip = np.array([chip_name(str(name)) for name in frame["gpu"]])
    held_families = _share(np.unique(family), fold, folds, rng)
    # chips with many rows first, so that every fold holds out some of them
    names, counts = np.unique(chip, return_counts=True)
    order = names[np.argsort(-counts, kind="stable")]
    held_chips = set(order[fold::folds])
    out_family, out_chip = np.isin(family, list(held_families)), np.isin(chip, list(held_chips))
    rest = np.flatnonzero(~out_family & ~out_chip)
    drawn = np.sort(rng.choice(rest, size=round(RANDOM_SHARE * len(rest)), replace=False))
    test = {
        "random": drawn,
        "unseen-architecture": np.flatnonzero(out_family & ~out_chip),
        "unseen-device": np.flatnonzero(~out_family & out_chip),
        "unseen-both": np.flatnonzero(out_family & out_chip),
    }
    devices = tuple(sorted({str(g) for g in frame["gpu"].to_numpy()[out_chip]}))
    return Fold(np.setdiff1d(rest, drawn), test, devices, tuple(sorted(held_families)))


def _share(names: np.ndarray, fold: int, folds: int, rng: np.random.Generator) -> set[str]:
    shuffled = rng.permutation(names)
    return {str(name) for name in shuffled[fold::folds]}
