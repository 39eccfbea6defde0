"""What a study was started with, kept beside it so that every worker does the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from prenet_gnn.common.files import write_whole
from prenet_gnn.errors import ConfigError
from prenet_gnn.tuning.proxy import ProxyConfig

FILE = "tune.json"
PRUNERS = ("median", "hyperband", "none")


@dataclass(frozen=True, slots=True)
class TuneConfig:
    """Settings of a study.

    Attributes:
        base: Settings that are not searched, as in a configuration file.
        proxy: The sample of rows.
        epochs: Epochs per trial.
        trials: Finished trials that the study shall have.
        storage: Address of the study; empty for a journal in the study's folder.
        pruner: One of `PRUNERS`.
        with_latency: Also minimise the time of a prediction.
        seed: Seed of the sampler.
    """

    base: dict[str, Any] = field(default_factory=dict)
    proxy: ProxyConfig = field(default_factory=ProxyConfig)
    epochs: int = 6
    trials: int = 60
    storage: str = ""
    pruner: str = "median"
    with_latency: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks what would only fail inside a worker."""
        if self.pruner not in PRUNERS:
            raise ConfigError(
                f"pruner '{self.pruner}' is not known. Allowed: {', '.join(PRUNERS)}."
            )
        for name in ("epochs", "trials"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed must be between 0 and {2**32 - 1:,}, not {self.seed}.")

    @property
    def directions(self) -> tuple[str, ...]:
        """What Optuna does with each objective."""
        return ("minimize",) * (2 if self.with_latency else 1)

    def save(self, folder: Path) -> None:
        """Writes the settings into the folder of the study."""
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / FILE, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> TuneConfig:
        """Reads them."""
        data = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return cls(**{**data, "proxy": ProxyConfig(**data["proxy"])})


def base_settings(config: Path | None, changes: Sequence[str] = ()) -> dict[str, Any]:
    """A configuration file with changes as plain data, without what is filled in when fitting."""
    from prenet_gnn.training.config import load_config

    data = load_config(config, changes).to_dict()
    data["model"] = {k: v for k, v in data["model"].items() if not k.endswith("_latents")}
    return {name: value for name, value in data.items() if value != {}}


def make_pruner(config: TuneConfig) -> Any:
    """The pruner of a study."""
    from optuna import pruners

    if config.pruner == "median":
        return pruners.MedianPruner(n_startup_trials=8, n_warmup_steps=1)
    if config.pruner == "hyperband":
        return pruners.HyperbandPruner(min_resource=1, max_resource=config.epochs)
    return pruners.NopPruner()
