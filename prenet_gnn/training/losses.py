"""What a fit makes small: errors of times, and latents and slopes that the data do not ask for."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from prenet_gnn.encoding.fields import RUN
from prenet_gnn.network.host import HostDispatch
from prenet_gnn.network.latents import FRAMEWORK_LATENTS
from prenet_gnn.network.network import TimeGNN
from prenet_gnn.network.readout import SHORTEST_S, Times
from prenet_gnn.training.rows import Rows
from prenet_gnn.training.train_config import TrainConfig

# Where the loss turns from squared to absolute, in natural logarithm of the time: errors below it
# are noise of the measurement.
BETA = 0.03
# Weight of a phase that was timed alone, beside the whole.
PHASE_WEIGHT = 0.25
# What the host's flags and latents cost, beside the settings of a fit.
RUN_PENALTY, LATENT_SCALE = 1e-3, 100.0
# Columns that tell the version.
VERSIONS = [RUN.place(name) for name in RUN.names if name.startswith("since_") or "version" in name]


def huber(predicted: Tensor, target: Tensor) -> Tensor:
    """Huber's loss of the logarithm of times, `(G,)`."""
    error = (predicted.clamp(min=SHORTEST_S).log() - target.log()).abs()
    return torch.where(error < BETA, error**2 / (2 * BETA), error - BETA / 2)


def loss_of(times: Times, targets: Tensor) -> Tensor:
    """Loss of every row `(G,)` from `targets (G, 3)`: whole, forward and backward seconds.

    Rows of `times` beyond the targets are left out.
    """
    rows = len(targets)
    loss = huber(times.total[:rows], targets[:, 0])
    for target, predicted in zip(targets.T[1:], (times.forward, times.backward), strict=True):
        known = torch.isfinite(target)
        part = huber(predicted[:rows], torch.where(known, target, torch.ones(())))
        loss = loss + PHASE_WEIGHT * torch.where(known, part, torch.zeros(()))
    return loss


def targets_of(rows: Rows, chosen: np.ndarray) -> Tensor:
    """Measured seconds `(G, 3)`; nan where a phase was not timed alone."""
    columns = [rows.seconds[chosen], rows.forward_s[chosen], rows.backward_s[chosen]]
    table = np.stack(columns, axis=1)
    infer = np.array([rows.workloads[i].mode == "infer" for i in chosen])
    table[infer, 1:] = np.nan
    return torch.from_numpy(table).float()


def penalties(network: TimeGNN, config: TrainConfig) -> Tensor:
    """What keeps latents and slopes small."""
    latents, slopes = network.latents, network.physics.specifications.slopes
    latent = (latents.device**2).sum() + (latents.host**2).sum()
    penalty: Tensor = config.latent_penalty * latent / LATENT_SCALE
    framework = latents.framework**2
    of_host = FRAMEWORK_LATENTS.span(framework, "host_forward", "host_backward")
    of_device = FRAMEWORK_LATENTS.span(framework, "arithmetic", "traffic")
    penalty = penalty + config.host_floor * of_host.sum() / LATENT_SCALE
    penalty = penalty + config.framework_penalty * of_device.sum()
    penalty = penalty + config.spec_penalty * (slopes**2).sum()
    versions = network.head.run_film.weight[:, VERSIONS]
    penalty = penalty + config.version_penalty * (versions**2).sum()
    if isinstance(network.host, HostDispatch):
        penalty = penalty + config.spec_penalty * network.host.year**2
        penalty = penalty + RUN_PENALTY * (network.host.run.weight**2).sum()
    if latents.has_settings:
        settings = (latents.device_setting**2).sum() + (latents.host_setting**2).sum()
        penalty = penalty + config.setting_penalty * settings
    return penalty
