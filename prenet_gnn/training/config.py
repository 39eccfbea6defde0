"""Everything a training run depends on: the settings of the shipped weights, or a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from prenet_gnn.errors import ConfigError
from prenet_gnn.network.config import NetworkConfig
from prenet_gnn.training.train_config import TrainConfig

SHIPPED = Path(__file__).with_name("shipped.toml")


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything a training run depends on, as in its TOML file.

    Attributes:
        model: Blocks of the network.
        train: How it is fitted.
        known: Settings of `train` that differ when a copy is tuned on known devices and
            frameworks, where `model.latents.settings` asks for one.
        members: Networks in the ensemble, with seeds counted up from `train.seed`.
        intervals: Half-widths of 90% intervals by situation, from `experiments.accuracy`.
    """

    model: NetworkConfig = field(default_factory=NetworkConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    known: dict[str, Any] = field(default_factory=dict)
    members: int = 1
    intervals: dict[str, float] = field(default_factory=dict)

    def seeded(self, seed: int) -> RunConfig:
        """The settings with another seed."""
        return replace(self, train=TrainConfig.from_dict({**self.train.to_dict(), "seed": seed}))

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain data."""
        return {**asdict(self), "model": self.model.to_dict()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RunConfig:
        """Builds the settings; unknown names are errors."""
        unknown = set(data) - {f.name for f in fields(cls)}
        if unknown:
            raise ConfigError(
                f"unknown settings: {', '.join(sorted(unknown))}. Allowed: model, train, known, "
                "members, intervals."
            )
        try:
            return cls(
                model=NetworkConfig.from_dict(data.get("model", {})),
                train=TrainConfig.from_dict(data.get("train", {})),
                known=_known(data),
                members=int(data.get("members", 1)),
                intervals={str(k): float(v) for k, v in data.get("intervals", {}).items()},
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"a setting has a wrong value: {error}.") from None


def _known(data: dict[str, Any]) -> dict[str, Any]:
    """The table `known`, whose values must be settings of `train` but the seed."""
    given = data.get("known", {})
    if not isinstance(given, dict) or "seed" in given:
        raise ConfigError("'known' must be a table of settings of 'train', without a seed.")
    checked: dict[str, Any] = TrainConfig.from_dict(given).to_dict()
    return {name: checked[name] for name in given}


def load_config(
    path: Path | None = None, changes: Sequence[str] = (), seed: int | None = None
) -> RunConfig:
    """Reads a TOML file, `SHIPPED` if None, and changes of the form `train.epochs=5`."""
    path = path or SHIPPED
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read '{path}': {error.strerror}.") from None
    except (ValueError, RecursionError) as error:  # no TOML, or no UTF-8
        raise ConfigError(f"'{path}' is no TOML: {error}.") from None
    for change in changes:
        _apply(data, change)
    config = RunConfig.from_dict(data)
    return config if seed is None else config.seeded(seed)


def _apply(data: dict[str, Any], change: str) -> None:
    name, mark, text = change.partition("=")
    if not mark:
        raise ConfigError(f"'{change}' is no change; write train.epochs=5.")
    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        value = text
    *path, last = name.strip().split(".")
    for part in path:
        data = data.setdefault(part, {})
        if not isinstance(data, dict):
            raise ConfigError(f"'{part}' in '{change}' is no table of settings.")
    data[last] = value
