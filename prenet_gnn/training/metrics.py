"""How far predicted times are from measured ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prenet_gnn.errors import DataError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scores:
    """Errors of a set of predictions; every error is a fraction (0.05 = 5%).

    Attributes:
        rows: Number of rows.
        mape: Mean absolute relative error.
        median_ape: Median absolute relative error.
        p90_ape: 90th percentile of the absolute relative error.
        bias: Geometric mean of predicted over measured, minus one; negative = predicted too fast.
        within_10: Share of rows whose error is at most 10%.
        spearman: Rank correlation; NaN for fewer than two rows or constant values.
        coverage: Share of rows inside their interval; NaN without intervals.
    """

    rows: int
    mape: float
    median_ape: float
    p90_ape: float
    bias: float
    within_10: float
    spearman: float
    coverage: float

    def to_dict(self) -> dict[str, Any]:
        """The scores by name, ready for JSON, which has no NaN: None stands for it."""
        return {n: None if math.isnan(value) else value for n, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Scores:
        """Scores that `to_dict` gave; other names are left aside."""
        values = {field.name: data[field.name] for field in fields(cls)}
        unknown: dict[str, Any] = {n: math.nan for n, value in values.items() if value is None}
        return cls(**values | unknown)


def ape(true_s: ArrayLike, predicted_s: ArrayLike) -> Floats:
    """Absolute relative error of every row."""
    true, predicted = _pair(true_s, predicted_s)
    return np.abs(predicted / true - 1)


def mape(true_s: ArrayLike, predicted_s: ArrayLike) -> float:
    """Mean absolute relative error."""
    return float(ape(true_s, predicted_s).mean())


def median_ape(true_s: ArrayLike, predicted_s: ArrayLike) -> float:
    """Median absolute relative error."""
    return float(np.median(ape(true_s, predicted_s)))


def p90_ape(true_s: ArrayLike, predicted_s: ArrayLike) -> float:
    """90th percentile of the absolute relative error."""
    return float(np.quantile(ape(true_s, predicted_s), 0.9))


def bias(true_s: ArrayLike, predicted_s: ArrayLike) -> float:
    """Geometric mean of predicted over measured, minus one.

    The arithmetic mean of relative errors would call 2x and 0.5x a bias of +25%; the geometric one
    calls it none.
    """
    true, predicted = _pair(true_s, predicted_s)
    return float(np.expm1(np.log(predicted / true).mean()))


def within(true_s: ArrayLike, predicted_s: ArrayLike, limit: float = 0.1) -> float:
    """Share of rows whose relative error is at most `limit`."""
    return float((ape(true_s, predicted_s) <= limit).mean())


def spearman(true_s: ArrayLike, predicted_s: ArrayLike) -> float:
    """Rank correlation; equal values share their mean rank."""
    true, predicted = _pair(true_s, predicted_s)
    a, b = _ranks(true), _ranks(predicted)
    if len(a) < 2 or a.std() == 0 or b.std() == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def coverage(true_s: ArrayLike, low_s: ArrayLike, high_s: ArrayLike) -> float:
    """Share of measured times inside their interval, limits included.

    Raises:
        DataError: The lengths differ, or a lower limit lies above its upper limit.
    """
    true, low = _pair(true_s, low_s, positive=False)
    _, high = _pair(true_s, high_s, positive=False)
    if (low > high).any():
        row = int(np.flatnonzero(low > high)[0])
        raise DataError(f"interval {row} is upside down: low {low[row]:g} s, high {high[row]:g} s.")
    return float(((low <= true) & (true <= high)).mean())


def summary(
    true_s: ArrayLike,
    predicted_s: ArrayLike,
    low_s: ArrayLike | None = None,
    high_s: ArrayLike | None = None,
) -> Scores:
    """All scores of a set of predictions.

    Raises:
        DataError: No rows, unequal lengths, or a value that is not a finite positive number.
    """
    if (low_s is None) != (high_s is None):
        raise DataError("an interval needs both its lower and its upper limits.")
    covered = float("nan")
    if low_s is not None and high_s is not None:
        covered = coverage(true_s, low_s, high_s)
    return Scores(
        rows=len(ape(true_s, predicted_s)),
        mape=mape(true_s, predicted_s),
        median_ape=median_ape(true_s, predicted_s),
        p90_ape=p90_ape(true_s, predicted_s),
        bias=bias(true_s, predicted_s),
        within_10=within(true_s, predicted_s),
        spearman=spearman(true_s, predicted_s),
        coverage=covered,
    )


def _pair(first: ArrayLike, second: ArrayLike, *, positive: bool = True) -> tuple[Floats, Floats]:
    a = np.asarray(first, dtype=np.float64).reshape(-1)
    b = np.asarray(second, dtype=np.float64).reshape(-1)
    if len(a) != len(b):
        raise DataError(f"{len(a)} measured times, but {len(b)} predicted ones.")
    if not len(a):
        raise DataError("there are no rows to score.")
    for name, values in (("measured", a), ("predicted", b)):
        wrong = ~np.isfinite(values) | (values <= 0 if positive else False)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise DataError(
                f"{name} time {row} is {values[row]:g}; it must be a finite positive number."
            )
    return a, b


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2)[inverse]
    return ranks
