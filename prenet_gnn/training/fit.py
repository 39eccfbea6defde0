"""The training loop, on Lightning Fabric."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from prenet_gnn.common.settings import Limits, checked
from prenet_gnn.encoding.batch import Sample, collate
from prenet_gnn.encoding.device import RUN
from prenet_gnn.network.config import ModelConfig
from prenet_gnn.network.latents import Latents
from prenet_gnn.network.network import TimeGNN, Times
from prenet_gnn.network.paired import PairedGNN
from prenet_gnn.training.metrics import mape, median_ape
from prenet_gnn.training.optimizer import make_optimizer, make_schedule
from prenet_gnn.training.parallel import (
    average,
    average_gradients,
    make_fabric,
    own_share,
    step_mean,
)
from prenet_gnn.training.resume import keep, resume
from prenet_gnn.training.rows import Rows, rare_operators

# Where the loss turns from squared to absolute, in natural logarithm of the time: errors below it
# are noise of the measurement.
BETA = 0.03
# Rows in validation batches; only memory depends on it.
EVAL_BATCH = 192
# Columns that tell the version.
VERSIONS = [i for i, name in enumerate(RUN) if name.startswith("since_") or "version" in name]
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
        ("weight_decay", "latent_penalty", "spec_penalty", "correction_penalty",
         "operator_weight", "host_floor", "version_penalty", "framework_penalty",
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
        correction_penalty: Penalty on the size of the device-relative correction.
        version_penalty: Squared penalty on what the version of PyTorch changes in the network. Few
            devices have rows of a version, and what sets them apart belongs to their latents.
        framework_penalty: Squared penalty on what a framework changes in the device's times; larger
            than that on device latents: what one device shows must not pass for its framework's.
        setting_penalty: Squared penalty on latents of known settings.
        fewest_families: Once a network is fitted, it is blind to names of operators that fewer
            families of training use, and so is its copy from the start; 0 hides none. All names
            are hidden at times in training (`model.operator_dropout`).
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
    correction_penalty: float = 1e-3
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


@dataclass
class Fitted:
    """A fitted network and the latents its tables hold."""

    model: TimeGNN | PairedGNN
    latents: Latents
    history: list[dict[str, float]]


def _huber(predicted: Tensor, target: Tensor) -> Tensor:
    error = (predicted.clamp(min=1e-9).log() - target.log()).abs()
    return torch.where(error < BETA, error**2 / (2 * BETA), error - BETA / 2)


def loss_of(times: Times, targets: Tensor) -> Tensor:
    """Loss of every row `(G,)` from `targets (G, 3)`: whole, forward and backward seconds.

    Rows of `times` beyond the targets are left out.
    """
    rows = len(targets)
    loss = _huber(times.total[:rows], targets[:, 0])
    for column, predicted in ((1, times.forward), (2, times.backward)):
        known = torch.isfinite(targets[:, column])
        part = _huber(predicted[:rows], torch.where(known, targets[:, column], torch.ones(())))
        loss = loss + 0.25 * torch.where(known, part, torch.zeros(()))
    return loss


def penalties(model: TimeGNN, config: TrainConfig) -> Tensor:
    """What keeps latents and slopes small."""
    latent = (model.device_latent**2).sum() + (model.host_latent**2).sum()
    penalty = config.latent_penalty * latent / 100.0
    framework = model.framework_latent**2
    penalty = penalty + config.host_floor * framework[:, :2].sum() / 100.0
    penalty = penalty + config.framework_penalty * framework[:, 2:].sum()
    penalty = penalty + config.spec_penalty * ((model.spec_slopes**2).sum() + model.host_year**2)
    versions = model.run_film.weight[:, VERSIONS]
    penalty = penalty + config.version_penalty * (versions**2).sum()
    penalty = penalty + 0.01 * (model.run_calls.weight**2).sum() / 10.0
    if model.config.setting_latents:
        settings = (model.device_setting**2).sum() + (model.host_setting**2).sum()
        penalty = penalty + config.setting_penalty * settings
    for parameter in model.device_head.parameters():
        if parameter.dim() > 1:
            penalty = penalty + config.correction_penalty * (parameter**2).sum() / 10.0
    return penalty


def targets_of(rows: Rows, chosen: np.ndarray) -> Tensor:
    """Measured seconds `(G, 3)`; nan where a phase was not timed alone."""
    columns = [rows.seconds[chosen], rows.forward_s[chosen], rows.backward_s[chosen]]
    table = np.stack(columns, axis=1)
    infer = np.array([rows.workloads[i].mode == "infer" for i in chosen])
    table[infer, 1:] = np.nan
    return torch.from_numpy(table).float()


def predict_rows(fitted: Fitted, rows: Rows, chosen: Sequence[int] | np.ndarray) -> np.ndarray:
    """Predicted seconds of rows, `(len(chosen),)`."""
    fitted.model.eval()
    result = []
    chosen = np.asarray(chosen)
    with torch.no_grad():
        for start in range(0, len(chosen), EVAL_BATCH):
            part = chosen[start : start + EVAL_BATCH]
            data = collate([rows.sample(int(i), fitted.latents) for i in part])
            result.append(fitted.model(data).total.numpy())
    return np.concatenate(result) if result else np.zeros(0)


def fit(
    rows: Rows,
    train: np.ndarray,
    validation: np.ndarray,
    model_config: ModelConfig,
    config: TrainConfig,
    *,
    operators: Rows | None = None,
    start: TimeGNN | None = None,
    folder: Path | None = None,
    report: Callable[[int, dict[str, float]], None] | None = None,
    validate_every: int = 5,
) -> Fitted:
    """Fits a network to some rows; processes of `torchrun` share the rows of every step.

    Args:
        rows: All rows.
        train: Indices to fit to.
        validation: Indices to score after every few epochs; may be empty.
        model_config: Size of the network; numbers of latents are filled in.
        config: How to fit.
        operators: Operators timed alone, to learn from beside the rows.
        start: A fitted network of the same size to go on from; it need not have latents of
            settings.
        folder: Keeps a checkpoint after every epoch there and resumes from it.
        report: Called after each epoch with its number and figures, in the first process; an
            exception it raises (a pruned trial) ends the fit.
        validate_every: Epochs between two scores on `validation`; the last epoch always has one.
    """
    from lightning.fabric import seed_everything

    seed_everything(config.seed, verbose=False)
    if operators is None or not config.operators_per_step:
        operators, latents = None, rows.latents(train)
    else:
        others = operators.latents(range(len(operators)))
        latents = rows.latents(train).with_devices(others.devices)
    model_config = replace(
        model_config,
        device_latents=len(latents.devices) + 1,
        host_latents=len(latents.hosts) + 1,
        framework_latents=len(latents.frameworks) + 1,
    )
    fabric = make_fabric()
    network, rare = _network(model_config, start), _rare(rows, train, config)
    network.hidden_names[rare] = start is not None
    optimizer = make_optimizer(network, config)
    per_epoch = config.rows_per_epoch or len(train)
    steps = config.epochs * math.ceil(per_epoch / config.batch_size)
    schedule = make_schedule(optimizer, steps)
    model, optimizer = fabric.setup(network, optimizer)
    state = {"model": network, "optimizer": optimizer, "schedule": schedule}
    settings = {**asdict(model_config), **asdict(config), "rows": len(train)}
    first, history = resume(fabric, folder, state, settings)
    samples = functools.cache(lambda i: rows.sample(i, latents))
    extra = _Operators(operators, latents, config) if operators is not None else None
    clusters = Clusters(rows, train, config.rows_per_graph) if config.rows_per_epoch else None
    fitted = Fitted(network, latents, history)
    for epoch in range(config.epochs):
        if epoch < first:
            continue
        # an epoch draws the same whether or not the run was stopped before it
        rng = np.random.default_rng([config.seed, epoch])
        torch.manual_seed(1000 * config.seed + epoch)
        losses = []
        model.train()
        for part, weights in _draw(rng, rows, train, clusters, config):
            mine = own_share(fabric, len(part))
            taken = [samples(int(i)) for i in part[mine]]
            hidden = _hidden(config.latent_dropout, mine, len(part))
            alone = extra.draw(fabric, rng) if extra is not None else None
            # operators go through the network with the rows: one pass is cheaper than two
            data = collate(taken + (alone.samples if alone is not None else []))
            if alone is not None:
                hidden = torch.cat([hidden, alone.hidden])
            data.latents = torch.where(hidden, torch.zeros_like(data.latents), data.latents)
            optimizer.zero_grad()
            with fabric.no_backward_sync(model, enabled=fabric.world_size > 1):
                times = model(data)
                each = loss_of(times, targets_of(rows, part[mine]))
                loss = step_mean(fabric, each * weights[mine], len(part))
                losses.append(float(loss.detach()))
                if alone is not None:
                    error = _huber(times.total[len(taken) :], alone.seconds)
                    loss = loss + config.operator_weight * step_mean(fabric, error, alone.drawn)
                fabric.backward(loss + penalties(network, config))
            average_gradients(fabric, network)
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        network.hidden_names[rare] |= epoch == config.epochs - 1
        figures = {"epoch": float(epoch), "loss": average(fabric, float(np.mean(losses)))}
        if len(validation) and ((epoch + 1) % validate_every == 0 or epoch == config.epochs - 1):
            predicted = predict_rows(fitted, rows, validation)
            figures["mape"] = mape(rows.seconds[validation], predicted)
            figures["median"] = median_ape(rows.seconds[validation], predicted)
        history.append(figures)
        keep(fabric, folder, state, settings, epoch, history)
        if report is not None and fabric.is_global_zero:
            report(epoch, figures)
    return fitted


def _network(config: ModelConfig, start: TimeGNN | None) -> TimeGNN:
    """A network with the weights of another, as far as that has them."""
    network = TimeGNN(config)
    if start is not None:
        network.load_state_dict({**network.state_dict(), **start.state_dict()})
    return network


def _rare(rows: Rows, train: np.ndarray, config: TrainConfig) -> Tensor:
    """Operators whose names too few families use."""
    return torch.from_numpy(rare_operators(rows, train, config.fewest_families))


class _Alone(NamedTuple):
    """Operators of a step that were timed alone: this process's share of `drawn` of them."""

    samples: list[Sample]
    seconds: Tensor
    hidden: Tensor
    drawn: int


class _Operators:
    """Draws operators that were timed alone."""

    def __init__(self, rows: Rows, latents: Latents, config: TrainConfig) -> None:
        """Takes the rows to draw from."""
        self.rows, self.size = rows, config.operators_per_step
        self.hide = config.latent_dropout
        self.chance = rows.weight / rows.weight.sum()
        self.sample = functools.cache(lambda i: rows.sample(i, latents))

    def draw(self, fabric: Any, rng: np.random.Generator) -> _Alone:
        """A fresh draw."""
        drawn = rng.choice(len(self.rows), size=self.size, p=self.chance)
        mine = own_share(fabric, len(drawn))
        seconds = torch.from_numpy(self.rows.seconds[drawn[mine]]).float()
        hidden = _hidden(self.hide, mine, len(drawn))
        return _Alone([self.sample(int(i)) for i in drawn[mine]], seconds, hidden, len(drawn))


def _hidden(share: float, mine: np.ndarray, rows: int) -> Tensor:
    """Which of `mine` of the step's rows see no latents: `(len(mine), 1)`."""
    return torch.rand(rows, 1)[mine] < share


class Clusters:
    """Rows of one encoded graph, which are drawn in company."""

    def __init__(self, rows: Rows, train: np.ndarray, size: int) -> None:
        """Sorts the rows of `train` by their graphs; `size` is the largest company."""
        place: dict[Any, list[int]] = {}
        for i in train:
            place.setdefault(rows.keys[int(i)], []).append(int(i))
        self.members = [np.array(found) for found in place.values()]
        self.chances = [rows.weight[found] / rows.weight[found].sum() for found in self.members]
        self.sizes = np.minimum([len(found) for found in self.members], size)
        total = np.array([rows.weight[found].sum() for found in self.members])
        # a graph whose rows come in twos is drawn half as often
        self.chance = total / self.sizes
        self.chance /= self.chance.sum()

    def draw(self, rng: np.random.Generator, count: int) -> list[np.ndarray]:
        """Companies of about `count` rows in all."""
        graphs = max(1, round(count / float(self.chance @ self.sizes)))
        drawn = rng.choice(len(self.members), size=graphs, p=self.chance)
        return [
            rng.choice(self.members[g], size=self.sizes[g], replace=False, p=self.chances[g])
            for g in drawn
        ]


def _draw(
    rng: np.random.Generator,
    rows: Rows,
    train: np.ndarray,
    clusters: Clusters | None,
    config: TrainConfig,
) -> list[tuple[np.ndarray, Tensor]]:
    """The steps of an epoch: rows, and how much each counts."""
    if clusters is None:
        order = rng.permutation(train)
        weight = rows.weight[order]
    else:
        order = np.concatenate(clusters.draw(rng, config.rows_per_epoch))
        weight = np.ones(len(order))
    steps = math.ceil((config.rows_per_epoch or len(train)) / config.batch_size)
    parts = np.array_split(np.arange(len(order)), steps)
    return [(order[p], torch.from_numpy(weight[p]).float()) for p in parts if len(p)]
