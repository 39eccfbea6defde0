"""What every baseline is: a table of rows in, positive seconds out, and a name to find it by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prenet_gnn.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
# Predictions below one kernel launch are not times; linear models produce them for small graphs.
SHORTEST_S = 1e-6


class Baseline(ABC):
    """Learns seconds from the rows of a table and predicts them for other rows.

    Attributes:
        columns: Columns that the table must have.
    """

    columns: ClassVar[tuple[str, ...]] = ()

    def fit(self, rows: pd.DataFrame, seconds: ArrayLike) -> Baseline:
        """Learns from measured times.

        Raises:
            DataError: A column is missing or not finite, or a time is not positive.
        """
        true = np.asarray(seconds, dtype=np.float64).reshape(-1)
        if len(true) != len(rows) or not len(true):
            raise DataError(f"{len(rows)} rows cannot be fitted to {len(true)} times.")
        if not (np.isfinite(true) & (true > 0)).all():
            raise DataError("measured times must be finite and positive.")
        self._check(rows)
        self._fit(rows, true)
        return self

    def predict(self, rows: pd.DataFrame) -> Floats:
        """Seconds of every row, always positive.

        Raises:
            DataError: A column is missing or not finite.
        """
        self._check(rows)
        return np.maximum(self._predict(rows), SHORTEST_S)

    def _check(self, rows: pd.DataFrame) -> None:
        missing = [name for name in self.columns if name not in rows.columns]
        if missing:
            raise DataError(f"{type(self).__name__} needs the column {missing[0]}.")
        for name in self.columns:
            if name != "device" and not np.isfinite(rows[name].to_numpy(dtype=np.float64)).all():
                raise DataError(f"column {name} holds a value that is not a finite number.")

    @abstractmethod
    def _fit(self, rows: pd.DataFrame, seconds: Floats) -> None: ...

    @abstractmethod
    def _predict(self, rows: pd.DataFrame) -> Floats: ...


B = TypeVar("B", bound=type[Baseline])
BASELINES: dict[str, type[Baseline]] = {}


def register_baseline(name: str) -> Callable[[B], B]:
    """Adds a baseline under a name; the name must be new."""

    def add(kind: B) -> B:
        if name in BASELINES:
            raise ConfigError(f"there is a baseline '{name}' already.")
        BASELINES[name] = kind
        return kind

    return add


class NumericColumns(Baseline):
    """Learns from every numeric column of the table it is fitted on."""

    def fit(self, rows: pd.DataFrame, seconds: ArrayLike) -> Baseline:
        """Remembers the numeric columns and learns from them."""
        self._names = [str(n) for n in rows.columns if rows[n].dtype.kind in "iufb"]
        if not self._names:
            raise DataError(f"{type(self).__name__} needs at least one numeric column.")
        return super().fit(rows, seconds)

    def _features(self, rows: pd.DataFrame) -> Floats:
        missing = [name for name in self._names if name not in rows.columns]
        if missing:
            raise DataError(
                f"{type(self).__name__} needs the column {missing[0]} it was fitted on."
            )
        x: Floats = rows[self._names].to_numpy(dtype=np.float64)
        wrong = ~np.isfinite(x).all(axis=0)
        if wrong.any():
            name = self._names[int(np.flatnonzero(wrong)[0])]
            raise DataError(f"column {name} holds a value that is not a finite number.")
        return x


def get_baseline(name: str) -> Baseline:
    """A new baseline by its name.

    Raises:
        ConfigError: There is no baseline of that name.
    """
    if name not in BASELINES:
        raise ConfigError(f"baseline '{name}' is not known. Allowed: {', '.join(BASELINES)}.")
    return BASELINES[name]()
