"""One split of measured rows: its parts, its file, and the proof that the parts are apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prenet_gnn.data.families import architectures
from prenet_gnn.errors import DataError

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Split:
    """Row positions (0 ... rows - 1) of the three parts; rows in none of them are unused.

    Attributes:
        name: What is unseen, for example `unseen-device/Tesla T4`.
        train: Rows to learn from.
        val: Rows to choose settings on; drawn from what would otherwise be training rows.
        test: Rows to report.
    """

    name: str
    train: Indices
    val: Indices
    test: Indices

    def to_json(self, path: str | Path) -> None:
        """Writes the split as JSON."""
        parts = {part: getattr(self, part).tolist() for part in ("train", "val", "test")}
        Path(path).write_text(json.dumps({"name": self.name, **parts}) + "\n", encoding="utf-8")

    @classmethod
    def from_json(cls, path: str | Path) -> Split:
        """Reads a split that `to_json` wrote.

        Raises:
            DataError: The file is missing or is not a split.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            parts = [np.asarray(data[part], dtype=np.int64) for part in ("train", "val", "test")]
            return cls(str(data["name"]), *parts)
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise DataError(f"{path} is not a split file: {error!r}.") from None


def check_split(
    split: Split,
    frame: pd.DataFrame,
    *,
    groups: Sequence[str] | NDArray[np.str_] | None = None,
    by_device: bool = False,
) -> None:
    """Makes sure that the parts of a split share no row, no group and, if asked, no device.

    Raises:
        DataError: A part is empty, out of range or overlaps another; says with what.
    """
    parts = {"train": split.train, "val": split.val, "test": split.test}
    for name, rows in parts.items():
        if name != "val" and not len(rows):
            raise DataError(f"split {split.name} has no {name} rows.")
        if len(rows) and (rows.min() < 0 or rows.max() >= len(frame)):
            raise DataError(
                f"split {split.name} was made for another table: {name} rows out of range."
            )
        if len(np.unique(rows)) != len(rows):
            raise DataError(f"split {split.name} repeats {name} rows.")
    labels: list[tuple[str, NDArray[np.generic]]] = [("row", np.arange(len(frame)))]
    if groups is not None:
        labels += [("group", np.asarray(groups)), ("architecture", architectures(frame).to_numpy())]
    if by_device:
        labels.append(("device", frame["device"].to_numpy()))
    if groups is not None or by_device:
        pairs = frame["device"].astype(str) + " | " + architectures(frame)
        labels.append(("model and device", pairs.to_numpy()))
    for what, values in labels:
        _no_overlap(split, what, values)


def _no_overlap(split: Split, what: str, values: NDArray[np.generic]) -> None:
    parts = (split.train, split.val, split.test)
    train, val, test = (set(values[part].tolist()) for part in parts)
    pairs = [("training", train, "test", test)]
    # Validation groups are drawn by device or by family, so only rows and groups always differ.
    if what in ("row", "group"):
        pairs += [("training", train, "validation", val), ("validation", val, "test", test)]
    for first, a, second, b in pairs:
        if a & b:
            shared = sorted(map(str, a & b))[0]
            raise DataError(f"split {split.name}: {what} {shared} is in {first} and in {second}.")
