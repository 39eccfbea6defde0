"""What moves the weights: Muon for matrices, AdamW for the rest, and the learning rate's course."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from prenet_gnn.model.network import TimeGNN
    from prenet_gnn.training.fit import TrainConfig

# Share of the steps in which the learning rate rises.
WARM_UP = 0.15
# Columns of these belong to single operators or flags; Muon would move rare ones as far as others.
TABLES = ("operator.", "run_film.")


class Joined(torch.optim.Optimizer):
    """Muon for matrices and AdamW for the rest, as one optimizer."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        """Takes the optimizers that it is made of."""
        self.parts = parts
        groups = [group for part in parts for group in part.param_groups]
        super().__init__(groups, {})
        # the groups of the parts are those a schedule changes
        self.param_groups = groups

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """A step of every part."""
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """The states of the parts."""
        return {str(i): part.state_dict() for i, part in enumerate(self.parts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the parts."""
        for i, part in enumerate(self.parts):
            part.load_state_dict(state[str(i)])
        self.param_groups = [group for part in self.parts for group in part.param_groups]


def make_optimizer(model: TimeGNN, config: TrainConfig) -> torch.optim.Optimizer:
    """Matrices decay, scales do not, and physical constants learn three times as fast."""
    physics, matrices, decay, plain = [], [], [], []
    for name, parameter in model.named_parameters():
        if "." not in name:
            physics.append(parameter)
        elif parameter.dim() == 2 and min(parameter.shape) > 8 and not name.startswith(TABLES):
            matrices.append(parameter)
        elif parameter.dim() > 1:
            decay.append(parameter)
        else:
            plain.append(parameter)
    rate = config.learning_rate
    with_muon = config.optimizer == "muon"
    groups = [
        {"params": decay if with_muon else decay + matrices, "weight_decay": config.weight_decay},
        {"params": plain, "weight_decay": 0.0},
        {"params": physics, "weight_decay": 0.0, "lr": 3 * rate},
    ]
    adam = torch.optim.AdamW(groups, lr=rate, fused=True)
    if not with_muon:
        return adam
    muon = torch.optim.Muon(
        matrices, lr=rate, weight_decay=config.weight_decay, adjust_lr_fn="match_rms_adamw"
    )
    return Joined(muon, adam)


def make_schedule(
    optimizer: torch.optim.Optimizer, steps: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """Up for a while, then down to nothing."""
    first = max(1.0, WARM_UP * steps)
    rest = max(1.0, steps - first)

    def factor(step: int) -> float:
        if step < first:
            return 0.04 + 0.96 * step / first
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, (step - first) / rest)))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
