"""Several processes that share every step of a fit, as `torchrun` starts them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from prenet_gnn.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor, nn


def processes() -> int:
    """How many processes `torchrun` started; 1 without it, whatever a cluster's variables say."""
    return int(os.environ["WORLD_SIZE"]) if _by_torchrun() else 1


def is_first() -> bool:
    """Whether this process is the one that writes files and reports."""
    return not _by_torchrun() or os.environ["RANK"] == "0"


def _by_torchrun() -> bool:
    return bool(torch.distributed.is_available() and torch.distributed.is_torchelastic_launched())


def make_fabric() -> Any:
    """Fabric on the processor, joined with the other processes of `torchrun`."""
    from lightning.fabric import Fabric

    if processes() == 1:
        fabric = Fabric(accelerator="cpu", devices=1)
    else:
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        fabric = Fabric(
            accelerator="cpu", devices=local, num_nodes=processes() // local, strategy="ddp"
        )
    fabric.launch()
    return fabric


def own_share(fabric: Any, rows: int) -> np.ndarray:
    """Positions of a step's rows that this process works on.

    Raises:
        ConfigError: There are more processes than rows.
    """
    if rows < fabric.world_size:
        raise ConfigError(
            f"a step has {rows} rows for {fabric.world_size} processes: take a larger "
            "train.batch_size or fewer processes."
        )
    return np.arange(fabric.global_rank, rows, fabric.world_size)


def step_mean(fabric: Any, losses: Tensor, rows: int) -> Tensor:
    """Mean over all rows of a step, so scaled that the average over processes is the mean."""
    mean: Tensor = losses.sum() * (fabric.world_size / rows)
    return mean


def average(fabric: Any, value: float) -> float:
    """Average of a figure over all processes."""
    if fabric.world_size == 1:
        return value
    total: Tensor = fabric.all_reduce(torch.tensor(value, dtype=torch.float64), reduce_op="mean")
    return float(total)


def average_gradients(fabric: Any, module: nn.Module) -> None:
    """Makes the gradients of all processes equal, by one exchange for all parameters together.

    A parameter that no row of this process reached counts as a gradient of zero.
    """
    if fabric.world_size == 1:
        return
    parameters = [p for p in module.parameters() if p.requires_grad]
    flat = torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters]
    )
    flat = fabric.all_reduce(flat, reduce_op="mean")
    start = 0
    for parameter in parameters:
        parameter.grad = flat[start : start + parameter.numel()].view_as(parameter).clone()
        start += parameter.numel()
