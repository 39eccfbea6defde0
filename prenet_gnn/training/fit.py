"""The training loop, on Lightning Fabric."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from prenet_gnn.encoding.batch import collate
from prenet_gnn.encoding.latents import Latents
from prenet_gnn.network.config import NetworkConfig
from prenet_gnn.network.latents import LatentSizes
from prenet_gnn.network.network import TimeGNN, build_single
from prenet_gnn.network.paired import PairedGNN
from prenet_gnn.training.drawing import Clusters, OperatorDraws, draw_steps, hidden_rows
from prenet_gnn.training.losses import huber, loss_of, penalties, targets_of
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
from prenet_gnn.training.train_config import TrainConfig

# Rows in validation batches; only memory depends on it.
EVAL_BATCH = 192
LARGEST_GRADIENT = 1.0


@dataclass(frozen=True)
class Material:
    """What a network is fitted to.

    Attributes:
        rows: All rows.
        train: Indices to fit to.
        validation: Indices to score on after every few epochs.
        operators: Operators timed alone, to learn from beside the rows.
    """

    rows: Rows
    train: np.ndarray
    validation: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    operators: Rows | None = None


@dataclass(frozen=True)
class Watch:
    """How a fit is followed and kept.

    Attributes:
        folder: Keeps a checkpoint after every epoch there and resumes from it.
        report: Called after each epoch with its number and figures, in the first process; an
            exception it raises (a pruned trial) ends the fit.
        validate_every: Epochs between two scores on validation rows; the last always has one.
    """

    folder: Path | None = None
    report: Callable[[int, dict[str, float]], None] | None = None
    validate_every: int = 5


@dataclass
class Fitted:
    """A fitted network and the latents its tables hold."""

    model: TimeGNN | PairedGNN
    latents: Latents
    history: list[dict[str, float]]


def predict_rows(fitted: Fitted, rows: Rows, chosen: Sequence[int] | np.ndarray) -> np.ndarray:
    """Predicted seconds of rows, `(len(chosen),)`."""
    fitted.model.eval()
    result = []
    chosen = np.asarray(chosen)
    with torch.no_grad():
        for start in range(0, len(chosen), EVAL_BATCH):
            part = chosen[start : start + EVAL_BATCH]
            batch = collate([rows.sample(int(i), fitted.latents) for i in part])
            result.append(fitted.model(batch).total.numpy())
    return np.concatenate(result) if result else np.zeros(0)


def fit(
    material: Material,
    network: NetworkConfig,
    config: TrainConfig,
    *,
    start: TimeGNN | None = None,
    watch: Watch | None = None,
) -> Fitted:
    """Fits a network to some rows; processes of `torchrun` share the rows of every step.

    Args:
        material: What to fit to.
        network: Blocks of the network.
        config: How to fit.
        start: A fitted network of the same size to go on from; it need not have latents of
            settings.
        watch: How the fit is followed and kept.
    """
    from lightning.fabric import seed_everything

    seed_everything(config.seed, verbose=False)
    return _Fit(material, network, config, start).run(watch or Watch())


class _Fit:
    """One fit: the network, what moves it, and what it is fitted to."""

    def __init__(
        self,
        material: Material,
        network: NetworkConfig,
        config: TrainConfig,
        start: TimeGNN | None,
    ) -> None:
        self.material, self.config = material, config
        rows, operators = material.rows, material.operators
        self.latents = rows.latents(material.train)
        if operators is not None and config.operators_per_step:
            others = operators.latents(range(len(operators)))
            self.latents = self.latents.with_devices(others.devices)
        blocks = {
            f"{block}.{name}": value
            for block, table in network.to_dict().items()
            for name, value in table.items()
        }
        self.settings = {**blocks, **asdict(config), "rows": len(material.train)}
        self.fabric = make_fabric()
        self.network = build_single(network, LatentSizes.of(self.latents))
        if start is not None:
            self.network.load_state_dict({**self.network.state_dict(), **start.state_dict()})
        rare = rare_operators(rows, material.train, config.fewest_families)
        self.rare = torch.from_numpy(rare)
        self.network.encoder.hidden_names[self.rare] = start is not None
        optimizer = make_optimizer(self.network, config)
        per_epoch = config.rows_per_epoch or len(material.train)
        steps = config.epochs * math.ceil(per_epoch / config.batch_size)
        self.schedule = make_schedule(optimizer, steps)
        self.model, self.optimizer = self.fabric.setup(self.network, optimizer)
        self.sample = functools.cache(lambda i: rows.sample(i, self.latents))
        self.alone = None
        if operators is not None and config.operators_per_step:
            self.alone = OperatorDraws(operators, self.latents, config)
        self.clusters = None
        if config.rows_per_epoch:
            self.clusters = Clusters(rows, material.train, config.rows_per_graph)

    def run(self, watch: Watch) -> Fitted:
        """All epochs that are not done yet."""
        config = self.config
        state = {"model": self.network, "optimizer": self.optimizer, "schedule": self.schedule}
        first, history = resume(self.fabric, watch.folder, state, self.settings)
        fitted = Fitted(self.network, self.latents, history)
        for epoch in range(first, config.epochs):
            last = epoch == config.epochs - 1
            loss = self._epoch(epoch)
            self.network.encoder.hidden_names[self.rare] |= last
            figures = {"epoch": float(epoch), "loss": average(self.fabric, loss)}
            if last or (epoch + 1) % watch.validate_every == 0:
                figures |= self._scores(fitted)
            history.append(figures)
            keep(self.fabric, watch.folder, state, self.settings, epoch, history)
            if watch.report is not None and self.fabric.is_global_zero:
                watch.report(epoch, figures)
        return fitted

    def _scores(self, fitted: Fitted) -> dict[str, float]:
        """How far validation rows are predicted; nothing where there are none."""
        rows, chosen = self.material.rows, self.material.validation
        if not len(chosen):
            return {}
        predicted = predict_rows(fitted, rows, chosen)
        measured = rows.seconds[chosen]
        return {"mape": mape(measured, predicted), "median": median_ape(measured, predicted)}

    def _epoch(self, epoch: int) -> float:
        """Every step of an epoch; gives their mean loss."""
        config, material = self.config, self.material
        # an epoch draws the same whether or not the run was stopped before it
        rng = np.random.default_rng([config.seed, epoch])
        torch.manual_seed(1000 * config.seed + epoch)
        self.model.train()
        steps = draw_steps(rng, material.rows, material.train, self.clusters, config)
        return float(np.mean([self._step(rng, part, weights) for part, weights in steps]))

    def _step(self, rng: np.random.Generator, part: np.ndarray, weights: Tensor) -> float:
        """One step on some rows, weighed, and on a draw of operators; gives the rows' loss."""
        fabric, config = self.fabric, self.config
        mine = own_share(fabric, len(part))
        taken = [self.sample(int(i)) for i in part[mine]]
        hidden = hidden_rows(config.latent_dropout, mine, len(part))
        alone = self.alone.draw(fabric, rng) if self.alone is not None else None
        # operators go through the network with the rows: one pass is cheaper than two
        batch = collate(taken + (alone.samples if alone is not None else []))
        if alone is not None:
            hidden = torch.cat([hidden, alone.hidden])
        self.optimizer.zero_grad()
        times = self.network(batch.without_latents(hidden))
        each = loss_of(times, targets_of(self.material.rows, part[mine]))
        loss = step_mean(fabric, each * weights[mine], len(part))
        found = float(loss.detach())
        if alone is not None:
            error = huber(times.total[len(taken) :], alone.seconds)
            loss = loss + config.operator_weight * step_mean(fabric, error, alone.drawn)
        fabric.backward(loss + penalties(self.network, config))
        average_gradients(fabric, self.network)
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), LARGEST_GRADIENT)
        self.optimizer.step()
        self.schedule.step()
        return found
