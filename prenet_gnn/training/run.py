"""From a folder of measurements to weights: caches, fits an ensemble, writes a checkpoint."""

from __future__ import annotations

import json
import platform
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prenet_gnn.errors import ConfigError, DataError
from prenet_gnn.network.config import ModelConfig
from prenet_gnn.network.network import TimeGNN
from prenet_gnn.network.paired import PairedGNN
from prenet_gnn.training.fit import Fitted, TrainConfig, fit
from prenet_gnn.training.parallel import is_first
from prenet_gnn.training.rows import Rows, family_names

if TYPE_CHECKING:
    from prenet_gnn.predictor.outside import Seen

ENCODED = "encoded.npz"
ENCODED_OPERATORS = "encoded-operators.npz"


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything a training run depends on, as in its TOML file.

    Attributes:
        model: Size of the network.
        train: How it is fitted.
        known: Settings of `train` that differ when a copy is tuned on known devices and
            frameworks, where `model.setting_latents` asks for one.
        members: Networks in the ensemble, with seeds counted up from `train.seed`.
        intervals: Half-widths of 90% intervals by situation, from `experiments.accuracy`.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    known: dict[str, Any] = field(default_factory=dict)
    members: int = 1
    intervals: dict[str, float] = field(default_factory=dict)

    def general(self) -> ModelConfig:
        """Settings of the network for all devices, without its copy for known ones."""
        return replace(self.model, setting_latents=0)

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RunConfig:
        """Builds the settings; unknown names are errors."""
        unknown = set(data) - {f.name for f in fields(cls)}
        if unknown:
            raise ConfigError(
                f"unknown settings: {', '.join(sorted(unknown))}. Allowed: model, train, known, "
                "members, intervals."
            )
        try:
            return cls(
                model=ModelConfig.from_dict(data.get("model", {})),
                train=TrainConfig.from_dict(data.get("train", {})),
                known=_known(data),
                members=int(data.get("members", 1)),
                intervals={str(k): float(v) for k, v in data.get("intervals", {}).items()},
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"a setting has a wrong value: {error}.") from None


def _known(data: dict[str, Any]) -> dict[str, Any]:
    """The table `known`, whose values must be settings of `train` but the seed."""
    given = data.get("known", {})
    if not isinstance(given, dict) or "seed" in given:
        raise ConfigError("'known' must be a table of settings of 'train', without a seed.")
    checked: dict[str, Any] = TrainConfig.from_dict(given).to_dict()
    return {name: checked[name] for name in given}


def load_config(
    path: Path | None, changes: Sequence[str] = (), seed: int | None = None
) -> RunConfig:
    """Reads a TOML file and changes of the form `train.epochs=5`."""
    data: dict[str, Any] = {}
    if path is not None:
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read '{path}': {error.strerror}.") from None
        except (ValueError, RecursionError) as error:  # no TOML, or no UTF-8
            raise ConfigError(f"'{path}' is no TOML: {error}.") from None
    for change in changes:
        _apply(data, change)
    config = RunConfig.from_dict(data)
    if seed is None:
        return config
    return replace(config, train=TrainConfig.from_dict({**config.train.to_dict(), "seed": seed}))


def _apply(data: dict[str, Any], change: str) -> None:
    name, mark, text = change.partition("=")
    if not mark:
        raise ConfigError(f"'{change}' is no change; write train.epochs=5.")
    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        value = text
    *path, last = name.strip().split(".")
    for part in path:
        data = data.setdefault(part, {})
        if not isinstance(data, dict):
            raise ConfigError(f"'{part}' in '{change}' is no table of settings.")
    data[last] = value


def prepare_rows(data: str | Path | None, *, workers: int = 2, progress: bool = True) -> Rows:
    """Measured rows with their encoded graphs; traces and encodes what the cache lacks.

    Raises:
        DataError: There is no data, or none of it can be used.
    """
    from prenet_gnn.data.graphs import build_cache
    from prenet_gnn.data.keys import cache_root, graph_requests
    from prenet_gnn.data.tables import find_data_dir, read_measurements, training_rows
    from prenet_gnn.training.encoding import Store, base_key, entry_key
    from prenet_gnn.training.rows import load_rows

    where = find_data_dir(data)
    frame = training_rows(read_measurements(where))
    keys = list(graph_requests(frame))
    build_cache({base_key(k) for k in keys}, workers=workers, data_dir=where, progress=progress)
    path = cache_root() / ENCODED
    store = Store.load(path)
    known = len(store.entries)
    store.fill(entry_key(k, row) for k, row in zip(keys, frame.itertuples(), strict=True))
    if len(store.entries) > known:
        store.save(path)
    rows = load_rows(frame, keys, store)
    if not len(rows):
        raise DataError("no row of the data has a graph: see `prenet data check`.")
    return rows


def prepare_operators(data: str | Path | None) -> Rows:
    """Operators that were timed alone, with their one-node graphs."""
    from prenet_gnn.data.keys import cache_root
    from prenet_gnn.data.tables import find_data_dir, read_operators
    from prenet_gnn.training.encoding import Store
    from prenet_gnn.training.operators import choose, operator_rows

    frame = choose(read_operators(find_data_dir(data)))
    path = cache_root() / ENCODED_OPERATORS
    store = Store.load(path)
    known = len(store.entries)
    rows = operator_rows(frame, store)
    if len(store.entries) > known:
        store.save(path)
    return rows


def fit_member(
    rows: Rows,
    train: np.ndarray,
    settings: RunConfig,
    seed: int,
    *,
    operators: Rows | None = None,
    folder: Path | None = None,
    report: Callable[[int, dict[str, float]], None] | None = None,
) -> Fitted:
    """One member of the ensemble: a network, and where asked for its copy for known settings.

    Args:
        rows: All rows.
        train: Indices to fit to.
        settings: How large the network is and how it is fitted; `members` does not matter.
        seed: Seed of this member.
        operators: Operators timed alone.
        folder: Keeps a checkpoint after every epoch there and resumes from it.
        report: Called after each epoch with its number and figures.
    """
    config = replace(settings.train, seed=seed)
    nothing = np.zeros(0, dtype=np.int64)
    general = fit(
        rows,
        train,
        nothing,
        settings.general(),
        config,
        operators=operators,
        folder=folder,
        report=report,
    )
    if not settings.model.setting_latents:
        return general
    assert isinstance(general.model, TimeGNN)
    known = fit(
        rows,
        train,
        nothing,
        settings.model,
        TrainConfig.from_dict({**config.to_dict(), **settings.known}),
        operators=operators,
        start=general.model,
        folder=known_folder(folder) if folder is not None else None,
        report=report,
    )
    assert isinstance(known.model, TimeGNN)
    pair = PairedGNN(general.model, known.model)
    return Fitted(pair, general.latents, general.history + known.history)


def known_folder(folder: Path) -> Path:
    """Where a run keeps the state of the copy for known settings."""
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
    rows = prepare_rows(data)
    operators = prepare_operators(data) if settings.train.operators_per_step else None
    everything = np.arange(len(rows))
    fitted: list[Fitted] = []
    for number in range(settings.members):
        if is_first():
            print(f"member {number + 1} of {settings.members}: {len(rows)} rows", flush=True)
        fitted.append(
            fit_member(
                rows,
                everything,
                settings,
                settings.train.seed + number,
                operators=operators,
                folder=output / f"member-{number}",
                report=_say,
            )
        )
    if is_first():
        write_checkpoint(output, fitted, rows, settings, operators)


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


def write_checkpoint(
    output: Path,
    fitted: Sequence[Fitted],
    rows: Rows,
    config: RunConfig,
    operators: Rows | None = None,
) -> None:
    """Writes weights and their description."""
    import torch

    from prenet_gnn.network.checkpoint import Checkpoint, save_checkpoint

    frame = rows.frame
    facts = {
        "rows": len(rows),
        "timed": list(rows.latents(range(len(rows))).devices),
        "sources": {str(k): int(v) for k, v in frame["source"].value_counts().items()},
        "devices": sorted({str(name) for name in frame["gpu"]}),
        "largest_log_seconds": float(np.log(rows.seconds).max()),
        "run": json.loads(json.dumps(config.to_dict())),
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "loss": [member.history[-1].get("loss") for member in fitted if member.history],
    }
    facts["seen_graphs"] = seen_in(rows, np.arange(len(rows))).to_dict()
    if operators is not None:
        counts = operators.frame["source"].value_counts()
        facts["operator_sources"] = {str(k): int(v) for k, v in counts.items()}
    checkpoint = Checkpoint(
        tuple(member.model.eval() for member in fitted),
        fitted[0].latents,
        dict(config.intervals),
        facts,
    )
    save_checkpoint(checkpoint, output)
