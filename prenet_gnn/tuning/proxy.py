"""A small, fixed sample of measured rows that a trial is fitted to and judged on.

The rows come from the training part of a joint fold, so a study never sees that fold's test groups.
Within it, whole families and whole chips are held out once more, and the trial is judged on as many
rows of unseen families as of unseen devices.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from prenet_gnn.common.files import replacing
from prenet_gnn.data.keys import GraphKey
from prenet_gnn.data.splits import Split, joint_fold
from prenet_gnn.errors import ConfigError, DataError
from prenet_gnn.training.rows import Rows, load_rows
from prenet_gnn.training.store import Store, entry_key

ROWS, GRAPHS = "rows.parquet", "graphs.npz"
# Columns that tell which part of the sample a row is in, and which encoded graph is its own.
PART = "proxy_part"
KEY_FIELDS = tuple(field.name for field in fields(GraphKey))
VALIDATED = ("unseen-architecture", "unseen-device")
# The inner fold; number 1 holds out the second largest chip and leaves the largest to train on.
INNER_FOLD, INNER_SEED = 1, 1


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """How the sample is drawn.

    Attributes:
        fold: Joint fold whose test rows stay out of reach.
        rows: Rows to fit to.
        validation_rows: Rows to judge on, half of unseen families, half of unseen devices.
        largest_graph: Graphs with more distinct calls are left out: they take the longest.
        seed: Draws the rows.
    """

    fold: int = 1
    rows: int = 3000
    validation_rows: int = 1000
    largest_graph: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks what would only fail after the data is read."""
        limits = {"fold": (0, 4), "rows": (2, 10**9), "validation_rows": (2, 10**9)}
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"{name} must be between {low} and {high:,}, not {value}.")


@dataclass(frozen=True)
class Proxy:
    """Rows with the indices to fit to and to judge on."""

    rows: Rows
    train: np.ndarray
    validation: np.ndarray


def inner_fold(rows: Rows, outer: Split) -> dict[str, np.ndarray]:
    """Rows of the outer fold's training part: `train`, and those of unseen groups."""
    inner = joint_fold(
        rows.frame.iloc[outer.train].reset_index(drop=True), INNER_FOLD, seed=INNER_SEED
    )
    parts = {"train": inner.train, **{kind: inner.test[kind] for kind in VALIDATED}}
    return {name: outer.train[chosen] for name, chosen in parts.items()}


def sample_proxy(rows: Rows, config: ProxyConfig) -> dict[str, np.ndarray]:
    """Draws the rows of `inner_fold` by weight, without those of large graphs.

    Raises:
        DataError: A part has no row.
    """
    rng = np.random.default_rng(config.seed)
    sizes = np.array([len(rows.store.entries[key].operators) for key in rows.keys])
    wanted = {"train": config.rows, **dict.fromkeys(VALIDATED, config.validation_rows // 2)}
    drawn = {}
    for part, chosen in inner_fold(rows, joint_fold(rows.frame, config.fold)).items():
        small = chosen[sizes[chosen] <= config.largest_graph]
        if not len(small):
            raise DataError(f"the sample for tuning has no rows for '{part}': give more data.")
        chance = rows.weight[small] / rows.weight[small].sum()
        count = min(wanted[part], len(small))
        drawn[part] = np.sort(rng.choice(small, count, replace=False, p=chance))
    return drawn


def write_proxy(rows: Rows, drawn: dict[str, np.ndarray], folder: Path) -> None:
    """Keeps the sample, so that a worker starts without reading all of the data."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = np.concatenate(list(drawn.values()))
    frame = rows.frame.iloc[chosen].reset_index(drop=True)
    keys = [rows.keys[int(i)].graph for i in chosen]
    for field in KEY_FIELDS:
        frame[f"graph_{field}"] = [getattr(key, field) for key in keys]
    frame[PART] = np.repeat(list(drawn), [len(part) for part in drawn.values()])
    store = Store()
    for i, row in zip(chosen, frame.itertuples(), strict=True):
        shared = rows.keys[int(i)]
        # a row is found again by its own key, which may not be the one that it shares
        for key in (shared, entry_key(shared.graph, row)):
            store.entries[key] = rows.store.entries[shared]
    store.save(folder / GRAPHS)
    with replacing(folder / ROWS) as draft:
        frame.to_parquet(draft)


def read_proxy(folder: Path) -> Proxy:
    """Reads what `write_proxy` kept.

    Raises:
        DataError: There is no sample in the folder, or another version made its graphs.
    """
    import pandas as pd

    if not (folder / ROWS).exists():
        raise DataError(f"'{folder}' holds no sample of rows: run `prenet tune` once.")
    frame = pd.read_parquet(folder / ROWS)
    columns = [frame[f"graph_{field}"].tolist() for field in KEY_FIELDS]
    keys = [GraphKey(*values) for values in zip(*columns, strict=True)]
    rows = load_rows(frame, keys, Store.load(folder / GRAPHS))
    if len(rows) < len(frame):
        raise DataError(f"the sample in '{folder}' is of another version: remove the folder.")
    is_train = (rows.frame[PART] == "train").to_numpy()
    return Proxy(rows, np.flatnonzero(is_train), np.flatnonzero(~is_train))


def prepare_proxy(folder: Path, config: ProxyConfig, data: str | Path | None = None) -> None:
    """Makes the sample unless it is there."""
    from prenet_gnn.training.prepare import prepare_rows

    if not (folder / ROWS).exists():
        rows = prepare_rows(data)
        write_proxy(rows, sample_proxy(rows, config), folder)
