"""Simple predictors that the network has to beat, each on whole-graph sums."""

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
# Directions in which the feature columns vary less than this are rounding, not information.
SMALLEST_SINGULAR = 1e-9


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


@register_baseline("mean")
class Mean(Baseline):
    """The geometric mean of all measured times, whatever the row."""

    def _fit(self, rows: pd.DataFrame, seconds: Floats) -> None:
        self._log_s = float(np.log(seconds).mean())

    def _predict(self, rows: pd.DataFrame) -> Floats:
        return np.full(len(rows), np.exp(self._log_s))


@register_baseline("roofline")
class Roofline(Baseline):
    """The larger of compute and memory time, times one factor per device.

    The factor is the geometric mean of measured over roofline; a device that was not seen gets the
    geometric mean over the devices that were.
    """

    columns: ClassVar[tuple[str, ...]] = (
        "device",
        "forward_flops",
        "backward_flops",
        "bytes",
        "peak_flops_per_s",
        "memory_bytes_per_s",
    )

    def _fit(self, rows: pd.DataFrame, seconds: Floats) -> None:
        log_factor = np.log(seconds / self._bound_s(rows))
        devices = rows["device"].to_numpy()
        self._log_factors = {d: float(log_factor[devices == d].mean()) for d in set(devices)}
        self._log_other = float(np.mean(list(self._log_factors.values())))

    def _predict(self, rows: pd.DataFrame) -> Floats:
        factors = [self._log_factors.get(device, self._log_other) for device in rows["device"]]
        product: Floats = self._bound_s(rows) * np.exp(factors)
        return product

    @staticmethod
    def _bound_s(rows: pd.DataFrame) -> Floats:
        flops = (rows["forward_flops"] + rows["backward_flops"]).to_numpy(dtype=np.float64)
        compute_s = flops / rows["peak_flops_per_s"].to_numpy(dtype=np.float64)
        num_bytes = rows["bytes"].to_numpy(dtype=np.float64)
        memory_s = num_bytes / rows["memory_bytes_per_s"].to_numpy(dtype=np.float64)
        bound: Floats = np.maximum(np.maximum(compute_s, memory_s), SHORTEST_S)
        return bound


class _Linear(Baseline):
    """Least squares of the relative error, so that short and long steps count alike."""

    def _fit(self, rows: pd.DataFrame, seconds: Floats) -> None:
        x = self._design(rows)
        self._scale = np.maximum(np.abs(x).max(axis=0), np.finfo(np.float64).tiny)
        weighted = (x / self._scale) / seconds[:, None]
        # The smallest of equally good solutions: columns may be multiples of each other.
        self._weights = np.linalg.lstsq(weighted, np.ones(len(x)), rcond=SMALLEST_SINGULAR)[0]

    def _predict(self, rows: pd.DataFrame) -> Floats:
        product: Floats = (self._design(rows) / self._scale) @ self._weights
        return product

    def _design(self, rows: pd.DataFrame) -> Floats:
        x = self._features(rows)
        return np.hstack([x, np.ones((len(x), 1))])

    def _features(self, rows: pd.DataFrame) -> Floats:
        x: Floats = rows[list(self.columns)].to_numpy(dtype=np.float64)
        return x


@register_baseline("flops")
class FlopsRegression(_Linear):
    """Linear regression on forward and backward FLOPs."""

    columns: ClassVar[tuple[str, ...]] = ("forward_flops", "backward_flops")


@register_baseline("linear")
class LinearRegression(_Linear):
    """Linear regression on every numeric column (pooled features of graph and device)."""

    def _fit(self, rows: pd.DataFrame, seconds: Floats) -> None:
        self._names = [str(n) for n in rows.columns if rows[n].dtype.kind in "iufb"]
        if not self._names:
            raise DataError("LinearRegression needs at least one numeric column.")
        super()._fit(rows, seconds)

    def _features(self, rows: pd.DataFrame) -> Floats:
        missing = [name for name in self._names if name not in rows.columns]
        if missing:
            raise DataError(f"LinearRegression needs the column {missing[0]} it was fitted on.")
        x: Floats = rows[self._names].to_numpy(dtype=np.float64)
        if not np.isfinite(x).all():
            name = self._names[int(np.flatnonzero(~np.isfinite(x).all(axis=0))[0])]
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
