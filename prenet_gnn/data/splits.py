"""How measured rows are split so that training gives no test row away."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prenet_gnn.data.families import architectures, families
from prenet_gnn.errors import ConfigError, DataError

Indices = NDArray[np.int64]
Labels = NDArray[np.generic]

TEST_KINDS = ("random", "unseen-architecture", "unseen-device", "unseen-both")
# Rows of a joint fold held out at random from what remains of training.
RANDOM_SHARE = 0.03
# Suffix of the test rows of a transfer whose chip has no training rows either.
NEW_CHIP = " new chip"
NEUSIGHT_TRAIN_DEVICES = (
    "Tesla P100-PCIE-16GB",
    "Tesla P4",
    "Tesla T4",
    "Tesla V100-PCIE-32GB",
    "NVIDIA A100-PCIE-40GB",
    "NVIDIA A100-SXM4-40GB",
)
NEUSIGHT_TEST_DEVICES = ("NVIDIA H100-SXM5-80GB", "NVIDIA A100-PCIE-80GB")


def _nobody() -> Indices:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Split:
    """Row positions (0 ... rows - 1) of training and tests; rows in none of them are unused.

    Attributes:
        name: What is unseen, for example `leave-out-device`.
        train: Rows to learn from.
        test: Rows to report, by what is unseen in them, such as one of `TEST_KINDS`.
        val: Rows to watch a fit on.
        devices: Devices that training has no row of.
        families: Families that training has no row of.
    """

    name: str
    train: Indices
    test: dict[str, Indices]
    val: Indices = field(default_factory=_nobody)
    devices: tuple[str, ...] = ()
    families: tuple[str, ...] = ()

    def to_json(self, path: str | Path) -> None:
        """Writes the split as JSON."""
        data = {
            "name": self.name,
            "train": self.train.tolist(),
            "val": self.val.tolist(),
            "test": {kind: rows.tolist() for kind, rows in self.test.items()},
            "devices": list(self.devices),
            "families": list(self.families),
        }
        Path(path).write_text(json.dumps(data) + "\n", encoding="utf-8")

    @classmethod
    def from_json(cls, path: str | Path) -> Split:
        """Reads a split that `to_json` wrote.

        Raises:
            DataError: The file is missing or is not a split.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls(
                name=str(data["name"]),
                train=np.asarray(data["train"], dtype=np.int64),
                test={k: np.asarray(v, dtype=np.int64) for k, v in dict(data["test"]).items()},
                val=np.asarray(data["val"], dtype=np.int64),
                devices=tuple(map(str, data["devices"])),
                families=tuple(map(str, data["families"])),
            )
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise DataError(f"{path} is not a split file: {error!r}.") from None


def check_split(split: Split, rows: int, apart: Mapping[str, Labels]) -> None:
    """Makes sure that training shares no row with another part, and no group with a test.

    Args:
        split: What is checked.
        rows: Rows of the table that it was made for.
        apart: Labels of all rows by what they tell, such as `family`, that tests keep apart.

    Raises:
        DataError: A part is empty, out of range or overlaps another; says with what.
    """
    if not len(split.train) or not any(map(len, split.test.values())):
        missing = "test" if len(split.train) else "train"
        raise DataError(f"split {split.name} has no {missing} rows.")
    for name, part in {"train": split.train, "val": split.val, **split.test}.items():
        if len(part) and (part.min() < 0 or part.max() >= rows):
            raise DataError(
                f"split {split.name} was made for another table: {name} rows out of range."
            )
        if len(np.unique(part)) != len(part):
            raise DataError(f"split {split.name} repeats {name} rows.")
    position = np.arange(rows)
    _no_overlap(split, "row", position, ("train", split.train), ("val", split.val))
    for kind, part in split.test.items():
        _no_overlap(split, "row", position, ("val", split.val), (kind, part))
        for what, values in {"row": position, **apart}.items():
            _no_overlap(split, what, values, ("train", split.train), (kind, part))


def _no_overlap(
    split: Split, what: str, values: Labels, first: tuple[str, Indices], second: tuple[str, Indices]
) -> None:
    (a, rows), (b, others) = first, second
    shared = set(values[rows].tolist()) & set(values[others].tolist())
    if shared:
        example = sorted(map(str, shared))[0]
        raise DataError(f"split {split.name}: {what} {example} is in {a} and in {b}.")


def joint_fold(frame: pd.DataFrame, fold: int, folds: int = 5, seed: int = 0) -> Split:
    """The fold number `fold` of `folds`, which one fit tests on all of `TEST_KINDS`.

    Each family, with all its models in all libraries, and each chip, with every card of it, is
    held out in exactly one fold.

    Args:
        frame: Rows of `training_rows`.
        fold: From 0.
        folds: How many.
        seed: Shuffles families and chips.
    """
    rng = np.random.default_rng(seed)
    family, chip = _families(frame), _chips(frame)
    held_families = set(rng.permutation(np.unique(family))[fold::folds].tolist())
    # chips with many rows first, so that every fold holds out some of them
    names, counts = np.unique(chip, return_counts=True)
    held_chips = names[np.argsort(-counts, kind="stable")][fold::folds]
    out_family, out_chip = np.isin(family, list(held_families)), np.isin(chip, held_chips)
    rest = np.flatnonzero(~out_family & ~out_chip)
    drawn = np.sort(rng.choice(rest, size=round(RANDOM_SHARE * len(rest)), replace=False))
    parts = (
        drawn,
        np.flatnonzero(out_family & ~out_chip),
        np.flatnonzero(~out_family & out_chip),
        np.flatnonzero(out_family & out_chip),
    )
    return Split(
        f"fold-{fold}",
        np.setdiff1d(rest, drawn),
        dict(zip(TEST_KINDS, parts, strict=True)),
        devices=_devices(frame, out_chip),
        families=tuple(sorted(held_families)),
    )


def without_device(frame: pd.DataFrame, device: str) -> Split:
    """Leaves one device out, with every card of its chip, since those would give the answer away.

    Raises:
        ConfigError: There are no rows of the device.
    """
    chip = _chips(frame)
    out = chip == chip_name(device)
    if not out.any():
        known = ", ".join(sorted({str(gpu) for gpu in frame["gpu"]}))
        raise ConfigError(f"no rows were measured on '{device}'. Devices with rows: {known}.")
    split = Split(
        "leave-out-device",
        np.flatnonzero(~out),
        {"unseen-device": np.flatnonzero(out)},
        devices=_devices(frame, out),
    )
    check_split(split, len(frame), {"chip": chip})
    return split


def transfer(
    name: str, frame: pd.DataFrame, train: NDArray[np.bool_], test: NDArray[np.bool_]
) -> Split:
    """From one group of rows to another; test rows on chips without training rows stand apart.

    Test rows whose family or network is in training too are in neither part.

    Args:
        name: Of the split and of its test rows.
        frame: Rows of `training_rows`.
        train: Mask of the rows to learn from.
        test: Mask of the rows to report.
    """
    family, chip, network = _families(frame), _chips(frame), architectures(frame).to_numpy()
    test = test & ~np.isin(family, family[train]) & ~np.isin(network, network[train])
    known = np.isin(chip, chip[train])
    parts = {name: test & known, name + NEW_CHIP: test & ~known}
    split = Split(
        name,
        np.flatnonzero(train),
        {kind: np.flatnonzero(mask) for kind, mask in parts.items() if mask.any()},
        families=tuple(sorted(set(family[test].tolist()))),
    )
    check_split(split, len(frame), {"family": family, "architecture": network})
    return split


def neusight(frame: pd.DataFrame) -> Split:
    """NeuSight's protocol: its training devices, tested on its workloads on H100 and A100 80 GB."""
    device = frame["device"].to_numpy()
    train = np.isin(device, NEUSIGHT_TRAIN_DEVICES)
    own = (frame["source"] == "neusight").to_numpy()
    test = np.isin(device, NEUSIGHT_TEST_DEVICES) & own
    split = Split("neusight", np.flatnonzero(train), {"unseen-device": np.flatnonzero(test)})
    check_split(split, len(frame), {"device": device})
    return split


def chip_name(device: str) -> str:
    """Name of the chip: a device name without form factor and memory size.

    Boards with one chip (`Tesla V100-SXM2-16GB`, `Tesla V100-PCIE-32GB`) are about equally fast.
    """
    return re.sub(r"(-(PCIE|SXM\d?|\d+GB))+$", "", device, flags=re.IGNORECASE)


def _families(frame: pd.DataFrame) -> NDArray[np.str_]:
    return np.array(families(frame), dtype=str)


def _chips(frame: pd.DataFrame) -> NDArray[np.str_]:
    return np.array([chip_name(str(name)) for name in frame["gpu"]])


def _devices(frame: pd.DataFrame, chosen: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(sorted({str(name) for name in frame["gpu"].to_numpy()[chosen]}))
