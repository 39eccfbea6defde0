"""Fits what ships to rows of measurements, an ensemble of networks, and writes its checkpoint."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from prenet_gnn.data.splits import Split
from prenet_gnn.errors import ConfigError
from prenet_gnn.network.network import TimeGNN
from prenet_gnn.network.paired import PairedGNN, general_config
from prenet_gnn.training import prepare
from prenet_gnn.training.config import RunConfig, load_config
from prenet_gnn.training.fit import Fitted, Material, Watch, fit, predict_rows
from prenet_gnn.training.parallel import is_first
from prenet_gnn.training.rows import Rows, family_names
from prenet_gnn.training.train_config import TrainConfig

if TYPE_CHECKING:
    import pandas as pd

    from prenet_gnn.predictor.outside import Seen


@dataclass(frozen=True)
class Ensemble:
    """Fitted networks with what they learned from.

    Attributes:
        members: The networks.
        settings: How they were fitted.
        rows: All rows.
        operators: Operators timed alone that they learned from too.
    """

    members: tuple[Fitted, ...]
    settings: RunConfig
    rows: Rows
    operators: Rows | None

    def predict(self, chosen: Sequence[int] | np.ndarray) -> np.ndarray:
        """Seconds of some rows, `(len(chosen),)`: the geometric mean over the members."""
        logs = [np.log(predict_rows(member, self.rows, chosen)) for member in self.members]
        seconds: np.ndarray = np.exp(np.mean(logs, axis=0))
        return seconds


def fit_ensemble(
    rows: Rows,
    split: Split,
    settings: RunConfig,
    *,
    data: str | Path | None = None,
    watch: Watch | None = None,
) -> Ensemble:
    """Fits all members to the training rows of a split, and to operators of its devices.

    Args:
        rows: All rows.
        split: Which of them to learn from; operators on chips that it holds out are left out.
        settings: How large the networks are, how they are fitted, and how many.
        data: Folder of the measurements, where the operators lie.
        watch: How the fits are followed; its folder keeps the state of every member.
    """
    watch = watch or Watch()
    operators = None
    if settings.train.operators_per_step:
        operators = prepare.without_chips(prepare.prepare_operators(data), split.devices)
    material = Material(rows, split.train, split.val, operators)
    members = [
        fit_member(
            material, settings.seeded(settings.train.seed + number), _of_member(watch, number)
        )
        for number in range(settings.members)
    ]
    return Ensemble(tuple(members), settings, rows, operators)


def _of_member(watch: Watch, number: int) -> Watch:
    """Gives a member a folder of its own, and its number, from 1, among the figures it reports."""
    folder, report = watch.folder, watch.report

    def numbered(epoch: int, figures: dict[str, float]) -> None:
        if report is not None:
            report(epoch, {"member": number + 1, **figures})

    own = member_folder(folder, number) if folder is not None else None
    return replace(watch, folder=own, report=numbered)


def fit_member(material: Material, settings: RunConfig, watch: Watch | None = None) -> Fitted:
    """One member of the ensemble: a network, and where asked for its copy for known settings.

    Args:
        material: What to fit to.
        settings: How large the network is and how it is fitted; `members` does not matter.
        watch: How the fit is followed and kept.
    """
    watch = watch or Watch()
    general = fit(material, general_config(settings.model), settings.train, watch=watch)
    if not settings.model.latents.settings:
        return general
    assert isinstance(general.model, TimeGNN)
    of_known = TrainConfig.from_dict({**settings.train.to_dict(), **settings.known})
    folder = known_folder(watch.folder) if watch.folder is not None else None
    known = fit(
        material,
        settings.model,
        of_known,
        start=general.model,
        watch=replace(watch, folder=folder),
    )
    assert isinstance(known.model, TimeGNN)
    pair = PairedGNN(general.model, known.model)
    return Fitted(pair, general.latents, general.history + known.history)


def member_folder(folder: Path, number: int) -> Path:
    """Where a run keeps the state of a member."""
    return folder / f"member-{number}"


def known_folder(folder: Path) -> Path:
    """Where a member keeps the state of the copy for known settings."""
    return folder / "known"


def run_training(
    output: Path,
    *,
    config: Path | None = None,
    changes: Sequence[str] = (),
    data: str | Path | None = None,
    seed: int | None = None,
) -> None:
    """Fits an ensemble on all rows and writes its checkpoint to `output`.

    A run that was stopped goes on from its last epoch when it is started again. Processes of
    `torchrun` share the rows of every step.
    """
    settings = load_config(config, changes, seed)
    if output.exists() and not output.is_dir():
        raise ConfigError(f"'{output}' is a file: name a folder for the weights.")
    rows = prepare.prepare_rows(data)
    if is_first():
        print(f"networks: {settings.members}, rows: {len(rows)}", flush=True)
    watch = Watch(output, _say)
    everything = Split("everything", np.arange(len(rows)), {})
    fitted = fit_ensemble(rows, everything, settings, data=data, watch=watch)
    if is_first():
        write_checkpoint(output, fitted)


def seen_in(rows: Rows, chosen: np.ndarray) -> Seen:
    """The graphs of some rows in short, to know later which graphs lie outside of them."""
    from prenet_gnn.predictor.outside import seen_graphs, summary

    group = family_names(rows, chosen)
    distinct = {rows.keys[i]: name for i, name in zip(chosen, group, strict=True)}
    summaries = np.stack([summary(rows.store.entries[key]) for key in distinct])
    return seen_graphs(summaries, list(distinct.values()))


def _say(epoch: int, figures: dict[str, float]) -> None:
    listed = ", ".join(f"{name} {value:.4g}" for name, value in figures.items() if name != "epoch")
    print(f"  epoch {epoch + 1}: {listed}", flush=True)


def write_checkpoint(output: Path, fitted: Ensemble) -> None:
    """Writes weights and their description."""
    import torch

    from prenet_gnn.network.checkpoint import Checkpoint, Facts, save_checkpoint
    from prenet_gnn.network.interval import Intervals

    rows, members, operators = fitted.rows, fitted.members, fitted.operators
    frame = rows.frame
    seen = seen_in(rows, np.arange(len(rows)))
    facts = Facts(
        rows=len(rows),
        timed=rows.latents(range(len(rows))).devices,
        sources=_counts(frame["source"]),
        operator_sources=_counts(operators.frame["source"]) if operators is not None else {},
        devices=tuple(sorted({str(name) for name in frame["gpu"]})),
        largest_log_seconds=float(np.log(rows.seconds).max()),
        seen_graphs=seen.to_dict(),
        run=json.loads(json.dumps(fitted.settings.to_dict())),
        loss=tuple(member.history[-1].get("loss") for member in members if member.history),
        versions={"torch": torch.__version__, "python": platform.python_version()},
    )
    checkpoint = Checkpoint(
        tuple(member.model.eval() for member in members),
        fitted.settings.model,
        members[0].latents,
        Intervals.from_dict(fitted.settings.intervals),
        facts,
    )
    save_checkpoint(checkpoint, output)


def _counts(sources: pd.Series) -> dict[str, int]:
    return {str(name): int(count) for name, count in sources.value_counts().items()}
