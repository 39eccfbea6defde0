"""Settings of a fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from prenet_gnn.common.settings import Limits, checked

_LIMITS: Limits = {
    "epochs": (1, 1e6),
    "rows_per_epoch": (0, 1e9),
    "batch_size": (1, 1e6),
    "learning_rate": (1e-9, 10.0),
    "latent_dropout": (0.0, 1.0),
    "operators_per_step": (0, 1e6),
    "fewest_families": (0, 1e6),
    "rows_per_graph": (1, 1e6),
    "seed": (0, 2**32 - 1),
    **dict.fromkeys(
        ("weight_decay", "latent_penalty", "spec_penalty", "operator_weight",
         "host_floor", "version_penalty", "framework_penalty",
         "setting_penalty"),
        (0.0, 1e6),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """How the network is fitted.

    Attributes:
        epochs: Rounds of `rows_per_epoch` rows.
        rows_per_epoch: Rows drawn per round, by weight; 0 takes every row once and weighs its
            loss.
        batch_size: Rows per step.
        learning_rate: Peak of the one-cycle schedule.
        weight_decay: AdamW's decay of matrices.
        latent_penalty: Squared penalty on device, host and framework latents.
        spec_penalty: Squared penalty on slopes over device specifications.
        version_penalty: Squared penalty on what the version of PyTorch changes in the network. Few
            devices have rows of a version, and what sets them apart belongs to their latents.
        framework_penalty: Squared penalty on what a framework changes in the device's times; larger
            than that on device latents: what one device shows must not pass for its framework's.
        setting_penalty: Squared penalty on latents of known settings.
        fewest_families: Once a network is fitted, it is blind to names of operators that fewer
            families of training use, and so is its copy from the start; 0 hides none. All names
            are hidden at times in training (`model.encoder.operator_dropout`).
        latent_dropout: Share of rows that see no device or host latent, so that the shared part
            stays good on its own.
        rows_per_graph: Rows of one encoded graph that are drawn together; they share the pass over
            its calls. Every row is drawn as often as with 1, except that those of one graph come in
            company. Of no effect where `rows_per_epoch` is 0.
        operators_per_step: Measured operators that join every step; 0 leaves them out.
        operator_weight: Weight of their loss.
        host_floor: Penalty that keeps framework latents small.
        optimizer: `adamw`, or `muon` for the matrices of the network (AdamW for the rest).
        seed: Seed of everything random.
    """

    epochs: int = 20
    rows_per_epoch: int = 12000
    batch_size: int = 64
    learning_rate: float = 3e-3
    weight_decay: float = 1e-3
    latent_penalty: float = 0.02
    spec_penalty: float = 0.02
    version_penalty: float = 2e-3
    framework_penalty: float = 0.1
    setting_penalty: float = 1e-3
    fewest_families: int = 6
    latent_dropout: float = 0.1
    rows_per_graph: int = 1
    operators_per_step: int = 192
    operator_weight: float = 0.2
    host_floor: float = 0.01
    optimizer: str = "muon"
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The settings by name."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TrainConfig:
        """Checks names, types and ranges and builds the settings."""
        choices = {"optimizer": ("adamw", "muon")}
        return cls(**checked("train", data, asdict(cls()), _LIMITS, choices))
