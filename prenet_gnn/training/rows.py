"""Measured rows as samples for the network, with targets, weights and groups."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.catalogue.rates import number_format
from prenet_gnn.data.families import families
from prenet_gnn.data.splits import chip_name
from prenet_gnn.encoding.batch import Sample, make_sample
from prenet_gnn.encoding.fields import FLOORS, OPERATORS
from prenet_gnn.encoding.latents import Latents, device_key, framework_key, host_key
from prenet_gnn.errors import DataError
from prenet_gnn.training.operators import LIBRARY, PASSES, operator_key
from prenet_gnn.training.store import EntryKey, Store, entry_key, entry_precision
from prenet_gnn.workload.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from prenet_gnn.encoding.encode import Encoded

log = logging.getLogger(__name__)
# Rows of one device, mode, format and library weigh together as this power of their number, so that
# the thousands of rows of three timm cards do not drown the forty others.
BALANCE = 0.7
# Sources state parameters in millions with two decimals. A row whose figure is further from its
# graph's than rounding explains was measured on another network: one that bore the name before, or
# one whose branches and normalisations had been merged, as timm's benchmark of PyTorch 2.9 did for
# FastViT, LeViT, MobileOne, EfficientViT and others (their parameters say so, and their times).
SAME_PARAMETERS = 6_000.0
# Before timm 0.9, which PyTorch 2 goes with in the data, TResNet ran InPlaceABN, an extension with
# kernels of its own (timm pull request 122): channels-last inference on the RTX 3090 took 2.4 to 3
# times as long under PyTorch 1.13 as under 2.1, and the plain layout 2 to 4% longer.
EXTENSION_BEFORE, EXTENSION_USERS = (2, 0), "tresnet"


@dataclass
class Rows:
    """Samples of measured rows.

    Shapes:
        `seconds`, `forward_s`, `backward_s` (nan where not measured) and `weight` are `(R,)`;
        `floors` says by which source operators were timed alone (`encoding.fields.FLOORS`).
    """

    frame: pd.DataFrame
    keys: list[EntryKey]
    workloads: list[Workload]
    seconds: np.ndarray
    forward_s: np.ndarray
    backward_s: np.ndarray
    weight: np.ndarray
    store: Store
    floors: list[int] | None = None

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.keys)

    def only(self, chosen: np.ndarray) -> Rows:
        """Some of the rows, by position."""
        return Rows(
            frame=self.frame.iloc[chosen].reset_index(drop=True),
            keys=[self.keys[i] for i in chosen],
            workloads=[self.workloads[i] for i in chosen],
            seconds=self.seconds[chosen],
            forward_s=self.forward_s[chosen],
            backward_s=self.backward_s[chosen],
            weight=self.weight[chosen],
            store=self.store,
            floors=None if self.floors is None else [self.floors[i] for i in chosen],
        )

    def latents(self, rows: Sequence[int] | np.ndarray) -> Latents:
        """The latents of some rows, to be fitted on them.

        A framework has one where rows of two chips tell of it, or rows of another framework on its
        chip: what stands alone may as well be the chip's own, and would be taken to other chips.
        """
        devices, hosts, met = set(), set(), set()
        for i in rows:
            gpu, workload = str(self.frame.gpu.iat[i]), self.workloads[i]
            kind = number_format(get_hardware(gpu), workload.precision)
            devices.add(device_key(gpu, kind))
            hosts.add(host_key(gpu, workload))
            met.add((framework_key(workload), chip_name(gpu)))
        names, chips = (Counter(pair[place] for pair in met) for place in (0, 1))
        frameworks = {name for name, chip in met if names[name] > 1 or chips[chip] > 1}
        return Latents(tuple(sorted(devices)), tuple(sorted(hosts)), tuple(sorted(frameworks)))

    def encoded(self, i: int) -> Encoded:
        """The graph of one row."""
        return self.store.entries[self.keys[i]]

    def sample(self, i: int, latents: Latents) -> Sample:
        """One row as the network takes it."""
        return make_sample(
            self.encoded(i),
            get_hardware(str(self.frame.gpu.iat[i])),
            self.workloads[i],
            latents,
            0 if self.floors is None else self.floors[i],
        )


def workload_of(row: object) -> Workload:
    """The workload of one row of `read_measurements`."""
    mode = str(getattr(row, "mode", getattr(row, "task", "train")))
    benchmark = getattr(row, "cudnn_benchmark", True)
    return Workload(
        mode="infer" if mode == "infer" else "train",
        precision=str(row.precision),  # type: ignore[attr-defined]
        optimizer=_optimizer(str(getattr(row, "optimizer", "none"))),
        channels_last=bool(row.channels_last),  # type: ignore[attr-defined]
        compiled=bool(row.compiled),  # type: ignore[attr-defined]
        cudnn_benchmark=bool(benchmark)
        if benchmark == benchmark and benchmark is not None
        else True,
        framework=str(row.framework) if isinstance(row.framework, str) else "",  # type: ignore[attr-defined]
        timed=str(row.timed),  # type: ignore[attr-defined]
    )


def _optimizer(name: str) -> str:
    """Nearest of the optimizers that the weights were fitted with, by tensors moved.

    `Workload` knows more of them; rows keep these few until the next fit.
    """
    plain = name.lower()
    if plain in ("none", "", "nan"):
        return "none"
    if "adam" in plain or "lamb" in plain:
        return "adamw"
    return "sgd_momentum" if "momentum" in plain or "sgd" in plain else "adamw"


def _is_other_network(row: object, encoded: Encoded) -> bool:
    """Whether a row states parameters that its graph does not have, or ran other kernels."""
    if str(getattr(row, "model", "")).startswith(EXTENSION_USERS):
        version = workload_of(row).framework_version
        if version is not None and version < EXTENSION_BEFORE:
            return True
    stated, traced = (
        float(getattr(row, "params", math.nan)),
        encoded.total("trainable_numel"),
    )
    if not stated > 0 or not traced > 0:
        return False
    return abs(stated - traced) > SAME_PARAMETERS


def load_rows(frame: pd.DataFrame, graph_keys: Sequence[object], store: Store) -> Rows:
    """Joins the rows of `training_rows` with their encoded graphs.

    Left out: rows without a graph, and rows of another network (`SAME_PARAMETERS`,
    `EXTENSION_USERS`).
    """
    keys, workloads, keep, others = [], [], [], 0
    for position, (row, key) in enumerate(zip(frame.itertuples(), graph_keys, strict=True)):
        entry = entry_key(key, row)  # type: ignore[arg-type]
        if entry not in store.entries:
            continue
        entry = store.shared(entry)
        if _is_other_network(row, store.entries[entry]):
            others += 1
            continue
        keep.append(position)
        keys.append(entry)
        workloads.append(workload_of(row))
    log.info("%d rows left out: they are of other networks than their graphs", others)
    kept = frame.iloc[keep].reset_index(drop=True)
    groups = kept.groupby(["gpu", "mode", "precision", "library"], dropna=False)
    size = groups["gpu"].transform("size").to_numpy(dtype=float)
    weight = size ** (BALANCE - 1.0)
    return Rows(
        frame=kept,
        keys=keys,
        workloads=workloads,
        seconds=kept.step_s.to_numpy(dtype=float),
        forward_s=kept.forward_s.to_numpy(dtype=float),
        backward_s=kept.backward_s.to_numpy(dtype=float),
        weight=weight / weight.mean() if len(weight) else weight,
        store=store,
    )


def operator_rows(frame: pd.DataFrame, store: Store) -> Rows:
    """Joins rows of `choose` with their encoded graphs, which `store` makes where it lacks them.

    Groups of one source, operator, pass and device weigh as the square root of their size.
    """
    columns = zip(frame["op"], frame["phase"], frame["shape"], frame["precision"], strict=True)
    keys = [EntryKey(operator_key(o, p, s), entry_precision(f), 0) for o, p, s, f in columns]
    store.fill(keys, workers=1)
    keep = [i for i, key in enumerate(keys) if key in store.entries]
    kept = frame.iloc[keep].reset_index(drop=True).assign(library=LIBRARY)
    workloads = [
        Workload(
            mode="infer" if phase == "forward" else "train",
            precision=precision,
            optimizer="none",
            framework=framework if framework.startswith("torch-") else "torch-unknown",
            timed=PASSES[phase],
        )
        for phase, precision, framework in zip(
            kept["phase"], kept["precision"], kept["framework"].astype(str), strict=True
        )
    ]
    size = kept.groupby(["source", "op", "phase", "gpu"])["op"].transform("size").to_numpy(float)
    weight = size**-0.5
    nothing = np.full(len(kept), np.nan)
    return Rows(
        frame=kept,
        keys=[keys[i] for i in keep],
        workloads=workloads,
        seconds=kept["latency_s"].to_numpy(float),
        forward_s=nothing,
        backward_s=nothing,
        weight=weight / weight.mean(),
        store=store,
        floors=[FLOORS.index(source) + 1 for source in kept["source"]],
    )


def family_names(rows: Rows, chosen: np.ndarray) -> list[str]:
    """The family of some rows' models; the model itself where no library knows one."""
    frame = rows.frame.iloc[chosen]
    try:
        return [str(name) for name in families(frame)]
    except DataError:
        return [str(name) for name in frame["model"]]


def rare_operators(rows: Rows, chosen: np.ndarray, fewest: int) -> np.ndarray:
    """Positions of operator names that fewer than `fewest` families of the rows use, `(K,)`.

    Such a name tells the family and not what the operator costs.
    """
    if not fewest:
        return np.zeros(0, dtype=np.int64)
    names = family_names(rows, chosen)
    family_of = {rows.keys[int(i)]: name for i, name in zip(chosen, names, strict=True)}
    users: list[set[str]] = [set() for _ in range(len(OPERATORS) + 1)]
    for key, name in family_of.items():
        for operator in np.unique(rows.store.entries[key].operators):
            users[int(operator)].add(name)
    found = [i for i, using in enumerate(users) if i and len(using) < fewest]
    return np.array(found, dtype=np.int64)
