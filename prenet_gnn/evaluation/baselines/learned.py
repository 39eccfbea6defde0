"""Regressors on pooled features, fitted to the logarithm of the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from prenet_gnn.evaluation.baselines.base import Floats, NumericColumns, register_baseline
from prenet_gnn.evaluation.baselines.regressors import make_regressor

if TYPE_CHECKING:
    import pandas as pd


class _Learned(NumericColumns):
    """Errors of the logarithm are relative errors: short and long steps count alike."""

    regressor: ClassVar[str]

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def _fit(self, rows: pd.DataFrame, seconds: Floats) -> None:
        x = self._features(rows)
        # Forests draw rows by position: a fixed order makes them independent of the table's.
        order = np.lexsort((*x.T, seconds))
        self._model = make_regressor(self.regressor, self.seed)
        self._model.fit(x[order], np.log(seconds[order]))

    def _predict(self, rows: pd.DataFrame) -> Floats:
        result: Floats = np.exp(self._model.predict(self._features(rows)).astype(np.float64))
        return result


@register_baseline("forest")
class Forest(_Learned):
    """A random forest on every numeric column."""

    regressor = "forest"


@register_baseline("boosting")
class Boosting(_Learned):
    """Gradient boosting (scikit-learn's histograms) on every numeric column."""

    regressor = "boosting"


@register_baseline("xgboost")
class XGBoost(_Learned):
    """XGBoost on every numeric column."""

    regressor = "xgboost"


@register_baseline("mlp")
class Perceptron(_Learned):
    """PreNeT's six-layer network on every numeric column."""

    regressor = "mlp"
