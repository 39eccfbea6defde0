"""How measured rows are split so that training gives no test row away."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prenet_gnn.data.families import architectures, families, kind_of
from prenet_gnn.data.split import Split, check_split
from prenet_gnn.errors import ConfigError

NEUSIGHT_TRAIN_DEVICES = (
    "Tesla P100-PCIE-16GB",
    "Tesla P4",
    "Tesla T4",
    "Tesla V100-PCIE-32GB",
    "NVIDIA A100-PCIE-40GB",
    "NVIDIA A100-SXM4-40GB",
)
NEUSIGHT_TEST_DEVICES = ("NVIDIA H100-SXM5-80GB", "NVIDIA A100-PCIE-80GB")
VALIDATION_SHARE = 0.1
# Few chips have rows at all: validation takes no more of them from training than this.
VALIDATION_CHIPS = 3


def random_split(frame: pd.DataFrame, *, test_share: float = 0.1, seed: int = 0) -> Split:
    """Rows drawn at random: how well the predictor fills gaps, not how well it generalises."""
    _check_share(test_share)
    order = np.random.default_rng(seed).permutation(len(frame)).astype(np.int64)
    test = round(test_share * len(frame))
    val = round(VALIDATION_SHARE * (len(frame) - test))
    parts = order[test + val :], order[test : test + val], order[:test]
    return Split("random", *(np.sort(part) for part in parts))


def unseen_architecture(frame: pd.DataFrame, *, folds: int = 5, seed: int = 0) -> list[Split]:
    """Folds by family; all models of a family are in one fold, whatever library or version."""
    groups = _groups(frame)
    fold_of = _folds(groups, folds, seed)
    splits = []
    for fold in range(folds):
        test = _mask(groups, [group for group, number in fold_of.items() if number == fold])
        val = ~test & _mask(groups, _draw_groups(groups[~test], seed))
        name = f"unseen-architecture/{fold}"
        splits.append(_checked(name, frame, ~test & ~val, val, test, groups=groups))
    return splits


def unseen_device(
    frame: pd.DataFrame, device: str, *, seed: int = 0, same_chip: bool = False
) -> Split:
    """Leaves one device out; validation rows come from other devices that training leaves out too.

    Args:
        frame: Measured rows.
        device: The device to test on.
        seed: Chooses the validation devices.
        same_chip: Keep other cards with the same chip (say the 16 GB and the 32 GB V100) in
            training; without it they are in no part, since they would give the answer away.
    """
    test = _device_mask(frame, device)
    sibling = np.zeros(len(frame), dtype=bool)
    if not same_chip:
        chips = _mapped(frame["device"], chip_name)
        sibling = (chips == chip_name(device)) & ~test
    rest = ~test & ~sibling
    chips = _mapped(frame["device"], chip_name)
    val = rest & _mask(chips, _draw_groups(chips[rest], seed, at_most=VALIDATION_CHIPS))
    return _checked(f"unseen-device/{device}", frame, rest & ~val, val, test, by_device=True)


def unseen_devices(frame: pd.DataFrame, *, min_rows: int = 1, seed: int = 0) -> list[Split]:
    """One split for every device with at least `min_rows` rows."""
    counts = frame["device"].value_counts()
    names = sorted(name for name, rows in counts.items() if rows >= min_rows and name)
    return [unseen_device(frame, str(name), seed=seed) for name in names]


def unseen_both(frame: pd.DataFrame, device: str, *, folds: int = 5, seed: int = 0) -> list[Split]:
    """Neither device nor family of a test row occurs in training; empty folds are left out."""
    on_device = _device_mask(frame, device)
    same_chip = _mapped(frame["device"], chip_name) == chip_name(device)
    groups = _groups(frame)
    fold_of = _folds(groups, folds, seed)
    splits = []
    for fold in range(folds):
        held_out = _mask(groups, [group for group, number in fold_of.items() if number == fold])
        test, rest = on_device & held_out, ~same_chip & ~held_out
        if not test.any() or not rest.any():
            continue
        val = rest & _mask(groups, _draw_groups(groups[rest], seed))
        name = f"unseen-both/{device}/{fold}"
        train = rest & ~val
        splits.append(_checked(name, frame, train, val, test, groups=groups, by_device=True))
    return splits


def torchvision_to_timm(frame: pd.DataFrame, *, seed: int = 0) -> Split:
    """Trains on torchvision rows, tests on timm rows of networks that are not among those."""
    names = architectures(frame).to_numpy()
    train = (frame["library"] == "torchvision").to_numpy()
    known = _mask(names, set(names[train]))
    test = (frame["library"] == "timm").to_numpy() & ~known
    val = train & _mask(names, _draw_groups(names[train], seed))
    return _checked("torchvision-to-timm", frame, train & ~val, val, test, groups=names)


def cnn_to_transformer(frame: pd.DataFrame, *, seed: int = 0) -> Split:
    """Trains on convolution networks and tests on transformers; networks with both are left out."""
    groups = _groups(frame)
    kinds = np.array([kind_of(group) for group in groups])
    train = kinds == "cnn"
    val = train & _mask(groups, _draw_groups(groups[train], seed))
    return _checked(
        "cnn-to-transformer", frame, train & ~val, val, kinds == "transformer", groups=groups
    )


def neusight(frame: pd.DataFrame, *, seed: int = 0, own_rows_only: bool = False) -> Split:
    """NeuSight's protocol: its training devices, tested on its workloads on H100 and A100 80 GB.

    Args:
        frame: Measured rows.
        seed: Chooses the validation models.
        own_rows_only: Train on NeuSight's rows alone, not on all rows of these devices.
    """
    own = (frame["source"] == "neusight").to_numpy()
    device = frame["device"].to_numpy()
    train = np.isin(device, NEUSIGHT_TRAIN_DEVICES) & (own | (not own_rows_only))
    test = np.isin(device, NEUSIGHT_TEST_DEVICES) & own
    groups = _groups(frame)
    val = train & _mask(groups, _draw_groups(groups[train], seed))
    return _checked("neusight", frame, train & ~val, val, test, by_device=True)


def chip_name(device: str) -> str:
    """Name of the chip: a device name without form factor and memory size.

    Boards with one chip (`Tesla V100-SXM2-16GB`, `Tesla V100-PCIE-32GB`) are about equally fast.
    """
    return re.sub(r"(-(PCIE|SXM\d?|\d+GB))+$", "", device, flags=re.IGNORECASE)


def _checked(
    name: str,
    frame: pd.DataFrame,
    train: NDArray[np.bool_],
    val: NDArray[np.bool_],
    test: NDArray[np.bool_],
    *,
    groups: NDArray[np.str_] | None = None,
    by_device: bool = False,
) -> Split:
    split = Split(name, *(np.flatnonzero(mask).astype(np.int64) for mask in (train, val, test)))
    check_split(split, frame, groups=groups, by_device=by_device)
    return split


def _groups(frame: pd.DataFrame) -> NDArray[np.str_]:
    """Families, joined where one architecture name occurs in two of them."""
    labels = frame["family"] if "family" in frame.columns else families(frame)
    names = architectures(frame).to_numpy()
    parent: dict[str, str] = {group: group for group in map(str, labels.unique())}

    def root(group: str) -> str:
        while parent[group] != group:
            group = parent[group]
        return group

    first: dict[str, str] = {}
    for name, label in dict.fromkeys(zip(names.tolist(), map(str, labels), strict=True)):
        a, b = sorted((root(first.setdefault(name, label)), root(label)))
        parent[b] = a
    return np.array([root(str(label)) for label in labels])


def _folds(groups: NDArray[np.str_], folds: int, seed: int) -> dict[str, int]:
    """Deals groups out, the largest first, always to the fold with the fewest rows."""
    names, counts = np.unique(groups, return_counts=True)
    if not 2 <= folds <= len(names):
        raise ConfigError(
            f"folds must be between 2 and {len(names)}, the number of families, not {folds}."
        )
    shuffled = np.random.default_rng(seed).permutation(len(names))
    order = shuffled[np.argsort(-counts[shuffled], kind="stable")]
    filled = [0] * folds
    fold_of = {}
    for index in order:
        fold = filled.index(min(filled))
        fold_of[str(names[index])] = fold
        filled[fold] += int(counts[index])
    return fold_of


def _draw_groups(groups: NDArray[np.str_], seed: int, *, at_most: int | None = None) -> list[str]:
    """Draws groups that together hold about `VALIDATION_SHARE` of the rows."""
    names, counts = np.unique(groups, return_counts=True)
    order = np.random.default_rng(seed + 1).permutation(len(names))
    target = VALIDATION_SHARE * len(groups)
    drawn: list[str] = []
    rows = 0
    for index in order:
        if rows + counts[index] <= 1.2 * target:
            drawn.append(str(names[index]))
            rows += int(counts[index])
        if rows >= 0.9 * target or len(drawn) == at_most:
            break
    if not drawn and len(names) > 1:
        drawn = [str(names[np.argmin(counts)])]
    return drawn


def _device_mask(frame: pd.DataFrame, device: str) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = (frame["device"] == device).to_numpy(dtype=bool)
    if not mask.any():
        known = ", ".join(sorted(set(frame["device"])))
        raise ConfigError(f"no rows were measured on '{device}'. Devices with rows: {known}.")
    return mask


def _mask(labels: NDArray[np.str_], chosen: Collection[str]) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = np.isin(labels, list(chosen))
    return mask


def _mapped(values: pd.Series, function: Callable[[str], str]) -> NDArray[np.str_]:
    table = {value: function(value) for value in values.unique()}
    return np.array([table[value] for value in values])


def _check_share(share: float) -> None:
    if not 0 < share < 1:
        raise ConfigError(f"test_share must be between 0 and 1, not {share}.")
