"""The settings that a study searches, written once."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Protocol

from prenet_gnn.encoding.template import ROUNDS
from prenet_gnn.network.message_passing import CONVS


class Suggests(Protocol):
    """The part of an Optuna trial that draws values."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """Draws a number."""

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1) -> int:
        """Draws a whole number."""

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        """Draws one of some values."""


@dataclass(frozen=True, slots=True)
class Number:
    """A range of numbers; whole ones where `step` is given."""

    low: float
    high: float
    step: int = 0
    log: bool = False

    def draw(self, trial: Suggests, name: str) -> float:
        """Lets a trial choose."""
        if self.step:
            return trial.suggest_int(name, int(self.low), int(self.high), step=self.step)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


@dataclass(frozen=True, slots=True)
class Choice:
    """A few values."""

    values: tuple[bool | int | str, ...]

    def draw(self, trial: Suggests, name: str) -> bool | int | str:
        """Lets a trial choose."""
        value: bool | int | str = trial.suggest_categorical(name, list(self.values))
        return value


# Names are those of the configuration file. Layers beyond `ROUNDS` would need other templates.
SPACE: dict[str, Number | Choice] = {
    "model.encoder.conv": Choice(tuple(name for name in CONVS if name != "none")),
    "model.encoder.hidden": Number(32, 128, step=16),
    "model.encoder.layers": Number(0, ROUNDS, step=1),
    "model.encoder.operator_embedding": Number(4, 16, step=4),
    "model.head.hidden": Number(16, 64, step=16),
    "model.encoder.dropout": Number(0.0, 0.2),
    "model.encoder.operator_dropout": Number(0.0, 0.3),
    "train.optimizer": Choice(("adamw", "muon")),
    "train.batch_size": Choice((16, 32, 48, 96)),
    "train.learning_rate": Number(5e-4, 1e-2, log=True),
    "train.weight_decay": Number(1e-5, 1e-1, log=True),
    "train.latent_penalty": Number(2e-3, 2e-1, log=True),
    "train.spec_penalty": Number(2e-4, 2e-1, log=True),
    "train.version_penalty": Number(2e-4, 2e-2, log=True),
    "train.latent_dropout": Number(0.0, 0.4),
}


def draw(trial: Suggests) -> dict[str, Any]:
    """The settings of one trial, by their names in the configuration file."""
    return {name: choice.draw(trial, name) for name, choice in SPACE.items()}


def nested(settings: dict[str, Any], base: dict[str, Any] | None = None) -> dict[str, Any]:
    """Puts `model.encoder.hidden` and the like into the tables of a configuration."""
    tables = copy.deepcopy(base or {})
    for name, value in settings.items():
        place = tables
        *path, key = name.split(".")
        for part in path:
            place = place.setdefault(part, {})
        place[key] = value
    return tables
