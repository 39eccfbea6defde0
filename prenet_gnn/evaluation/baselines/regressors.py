"""The regressors of PreNeT behind one interface: forests, boosting and its six-layer network."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from prenet_gnn.errors import ConfigError
from prenet_gnn.evaluation.baselines.base import Floats

REGRESSORS = ("linear", "forest", "boosting", "xgboost", "mlp")
# Hidden layers and dropout as PreNeT states them (Pourali et al., ICPE 2025, section 4).
MLP_LAYERS = (32, 64, 128, 128, 128, 128)
MLP_DROPOUT = 0.2
# A column whose values span more than this factor is taken by its logarithm in the network, which
# unlike trees does not live with a few huge values.
WIDE = 100.0


class Regressor(Protocol):
    """What scikit-learn's regressors do."""

    def fit(self, x: Floats, y: Floats) -> Any:
        """Learns."""

    def predict(self, x: Floats) -> Floats:
        """Values of rows."""


def make_regressor(name: str, seed: int = 0) -> Regressor:
    """A regressor of `REGRESSORS` with a fixed seed, on one thread.

    Raises:
        ConfigError: The name is not known.
    """
    if name == "linear":
        from sklearn.linear_model import LinearRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        made: Regressor = make_pipeline(StandardScaler(), LinearRegression())
    elif name == "forest":
        from sklearn.ensemble import RandomForestRegressor

        made = RandomForestRegressor(100, max_features=0.5, random_state=seed)
    elif name == "boosting":
        from sklearn.ensemble import HistGradientBoostingRegressor

        made = HistGradientBoostingRegressor(max_iter=300, random_state=seed)
    elif name == "xgboost":
        from xgboost import XGBRegressor

        made = XGBRegressor(
            n_estimators=400, max_depth=6, learning_rate=0.1, random_state=seed, n_jobs=1
        )
    elif name == "mlp":
        made = Mlp(seed)
    else:
        raise ConfigError(f"regressor '{name}' is not known. Allowed: {', '.join(REGRESSORS)}.")
    return made


class Mlp:
    """PreNeT's network: six hidden layers with ReLU and dropout, Adam, mean squared error."""

    def __init__(self, seed: int = 0, epochs: int = 60, batch_size: int = 128) -> None:
        """Remembers how to fit; small tables get more epochs, so that the steps suffice."""
        self.seed, self.epochs, self.batch_size = seed, epochs, batch_size

    def fit(self, x: Floats, y: Floats) -> Mlp:
        """Learns to predict `y (R,)` from `x (R, C)`."""
        import torch
        from torch import nn

        self._learn_scale(x)
        self._centre, self._spread = float(y.mean()), float(y.std()) or 1.0
        inputs = torch.from_numpy(self._scaled(x)).float()
        target = torch.from_numpy((y - self._centre) / self._spread).float()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            layers: list[nn.Module] = []
            width = x.shape[1]
            for hidden in MLP_LAYERS:
                layers += [nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(MLP_DROPOUT)]
                width = hidden
            self._net = nn.Sequential(*layers, nn.Linear(width, 1))
            optimizer = torch.optim.Adam(self._net.parameters(), lr=1e-3)
            epochs = max(self.epochs, 3000 * self.batch_size // max(len(y), 1) // 4)
            self._net.train()
            for _ in range(min(epochs, 300)):
                order = torch.randperm(len(y))
                for start in range(0, len(y), self.batch_size):
                    part = order[start : start + self.batch_size]
                    loss = nn.functional.mse_loss(self._net(inputs[part])[:, 0], target[part])
                    optimizer.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
        self._net.eval()
        return self

    def predict(self, x: Floats) -> Floats:
        """Values of rows, `(R,)`."""
        import torch

        with torch.no_grad():
            out = self._net(torch.from_numpy(self._scaled(x)).float())[:, 0].numpy()
        values: Floats = out.astype(np.float64) * self._spread + self._centre
        return values

    def _learn_scale(self, x: Floats) -> None:
        positive = np.where(x > 0, x, np.inf).min(axis=0)
        self._least = np.where(np.isfinite(positive), positive, 1.0)
        wide = x.max(axis=0) > WIDE * self._least
        self._wide = wide & (x.min(axis=0) >= 0)
        plain = self._logged(x)
        self._mean = plain.mean(axis=0)
        spread = plain.std(axis=0)
        self._scale = np.where(spread > 1e-9, spread, 1.0)

    def _logged(self, x: Floats) -> Floats:
        result: Floats = np.where(self._wide, np.log(np.maximum(x, 0) / self._least + 1.0), x)
        return result

    def _scaled(self, x: Floats) -> Floats:
        result: Floats = ((self._logged(x) - self._mean) / self._scale).clip(-8.0, 8.0)
        return result
