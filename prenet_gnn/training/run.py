"""Fits what ships to rows of measurements, an ensemble of networks, and writes its checkpoint."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from prenet_gnn.data.splits import Split
from prenet_gnn.errors import ConfigError
from prenet_gnn.network.network import TimeGNN
from prenet_gnn.network.paired import PairedGNN
from prenet_gnn.training import prepare
from prenet_gnn.training.config import RunConfig, load_config
from prenet_gnn.training.fit import Fitted, TrainConfig, fit, predict_rows
from prenet_gnn.training.parallel import is_first
from prenet_gnn.training.rows import Rows, family_names

if TYPE_CHECKING:
    from prenet_gnn.predictor.outside import Seen

Report = Callable[[int, dict[str, float]], None]


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
    folder: Path | None = None,
    report: Report | None = None,
) -> Ensemble:
    """Fits all members to the training rows of a split, and to operators of its devices.

    Args:
        rows: All rows.
        split: Which of them to learn from; operators on chips that it holds out are left out.
        settings: How large the networks are, how they are fitted, and how many.
        data: Folder of the measurements, where the operators lie.
        folder: Keeps the state of every member there and resumes from it.
        report: Called after each epoch with its number and figures.
    """
    operators = None
    if settings.train.operators_per_step:
        operators = prepare.without_chips(prepare.prepare_operators(data), split.devices)
    members = []
    for number in range(settings.members):
        member = fit_member(
            rows,
            split,
            settings.seeded(settings.train.seed + number),
            operators=operators,
            folder=member_folder(folder, number) if folder is not None else None,
            report=_of_member(report, number) if report is not None else None,
        )
        members.append(member)
    return Ensemble(tuple(members), settings, rows, operators)


def _of_member(report: Report, number: int) -> Report:
    """Adds the number of the member, from 1, to the figures of an epoch."""
    return lambda epoch, figures: report(epoch, {"member": number + 1, **figures})


def fit_member(
    rows: Rows,
    split: Split,
    settings: RunConfig,
    *,
    operators: Rows | None = None,
    folder: Path | None = None,
    report: Report | None = None,
) -> Fitted:
    """One member of the ensemble: a network, and where asked for its copy for known settings.

    Args:
        rows: All rows.
        split: Which of them to fit to.
        settings: How large the network is and how it is fitted; `members` does not matter.
        operators: Operators timed alone.
        folder: Keeps a checkpoint after every epoch there and resumes from it.
        report: Called after each epoch with its number and figures.
    """
    general = fit(
        rows,
        split.train,
        split.val,
        settings.general(),
        settings.train,
        operators=operators,
        folder=folder,
        report=report,
    )
    if not settings.model.setting_latents:
        return general
    assert isinstance(general.model, TimeGNN)
    known = fit(
        rows,
        split.train,
        split.val,
        settings.model,
        TrainConfig.from_dict({**settings.train.to_dict(), **settings.known}),
        operators=operators,
        start=general.model,
        folder=known_folder(folder) if folder is not None else None,
        report=report,
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
    everything = Split("everything", np.arange(len(rows)), {})
    fitted = fit_ensemble(rows, everything, settings, data=data, folder=output, report=_say)
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

    from prenet_gnn.network.checkpoint import Checkpoint, save_checkpoint

    rows, members, operators = fitted.rows, fitted.members, fitted.operators
    frame = rows.frame
    facts = {
        "rows": len(rows),
        "timed": list(rows.latents(range(len(rows))).devices),
        "sources": {str(k): int(v) for k, v in frame["source"].value_counts().items()},
        "devices": sorted({str(name) for name in frame["gpu"]}),
        "largest_log_seconds": float(np.log(rows.seconds).max()),
        "run": json.loads(json.dumps(fitted.settings.to_dict())),
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "loss": [member.history[-1].get("loss") for member in members if member.history],
    }
    facts["seen_graphs"] = seen_in(rows, np.arange(len(rows))).to_dict()
    if operators is not None:
        counts = operators.frame["source"].value_counts()
        facts["operator_sources"] = {str(k): int(v) for k, v in counts.items()}
    checkpoint = Checkpoint(
        tuple(member.model.eval() for member in members),
        members[0].latents,
        dict(fitted.settings.intervals),
        facts,
    )
    save_checkpoint(checkpoint, output)
