"""Predictors with a formula: mean, roofline, and least squares on whole-graph sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from prenet_gnn.evaluation.baselines.base import (
    SHORTEST_S,
    Baseline,
    Floats,
    NumericColumns,
    register_baseline,
)

if TYPE_CHECKING:
    import pandas as pd

# Directions in which the feature columns vary less than this are rounding, not information.
SMALLEST_SINGULAR = 1e-9


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
        largest = np.abs(x).max(axis=0)
        # A column of zeros gets no weight, so its scale does not matter.
        self._scale = np.where(largest > 0, largest, 1.0)
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
class LinearRegression(NumericColumns, _Linear):
    """Linear regression on every numeric column (pooled features of graph and device)."""
