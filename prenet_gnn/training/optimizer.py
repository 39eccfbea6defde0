"""What moves the weights: Muon for matrices, AdamW for the rest, and the learning rate's course."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from prenet_gnn.network.network import TimeGNN
    from prenet_gnn.training.train_config import TrainConfig

# Share of the steps in which the learning rate rises.
WARM_UP = 0.15
# Columns of these belong to single operators or flags; Muon would move rare ones as far as others.
TABLES = ("encoder.operator.", "head.run_film.")
# What these blocks and layers learn is no physical constant.
NETWORKS = ("encoder.", "head.", "host.run.")


# Coefficients and number of the Newton-Schulz steps, and the momentum, of Jordan et al. (2024,
# https://kellerjordan.github.io/posts/muon); the factor of the rate is that of Liu et al. (2025,
# arXiv:2502.16982), which makes steps as large as AdamW's.
NEWTON_SCHULZ, ROUNDS, MOMENTUM = (3.4445, -4.775, 2.0315), 5, 0.95
RMS_OF_ADAMW = 0.2
SMALLEST_NORM = 1e-7


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum for matrices (Jordan et al. 2024), in float32 and many at a time.

    `torch.optim.Muon` works in bfloat16 and matrix by matrix, which is slow on a CPU without
    bfloat16 units; `pytest -m slow tests/test_benchmarks.py -k muon` compares the two.
    """

    def __init__(self, matrices: Iterable[torch.Tensor], lr: float, weight_decay: float) -> None:
        """Takes the matrices, the learning rate and the decay, which is decoupled."""
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Moves every matrix that has a gradient."""
        for group in self.param_groups:
            same_shape: dict[tuple[int, ...], list[torch.Tensor]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    same_shape.setdefault(tuple(matrix.shape), []).append(matrix)
            for shape, matrices in same_shape.items():
                updates = orthogonalised(torch.stack([self._momentum(m) for m in matrices]))
                rate = group["lr"] * RMS_OF_ADAMW * math.sqrt(max(shape))
                for matrix, update in zip(matrices, updates, strict=True):
                    matrix.mul_(1.0 - group["lr"] * group["weight_decay"])
                    matrix.add_(update, alpha=-rate)

    def _momentum(self, matrix: torch.Tensor) -> torch.Tensor:
        """The gradient with Nesterov's momentum."""
        assert matrix.grad is not None
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        buffer: torch.Tensor = state["momentum_buffer"]
        buffer.lerp_(matrix.grad, 1.0 - MOMENTUM)
        return matrix.grad.lerp(buffer, MOMENTUM)


def orthogonalised(matrices: torch.Tensor) -> torch.Tensor:
    """Brings the singular values near one by Newton-Schulz steps: `(K, A, B)` to `(K, A, B)`."""
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=SMALLEST_NORM)
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


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
        if not name.startswith(NETWORKS):
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
    return Joined(Muon(matrices, lr=rate, weight_decay=config.weight_decay), adam)


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
