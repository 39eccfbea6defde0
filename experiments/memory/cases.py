"""Both ends of measured batch sizes: the one that fitted and the next, which did not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.memory.tools import Question, answers, fits
from experiments.shared.graphs import cached_graph
from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.common.files import write_whole
from prenet_gnn.data.families import families
from prenet_gnn.data.graphs import build_cache
from prenet_gnn.data.keys import GraphKey, cache_root, graph_requests
from prenet_gnn.data.tables import find_data_dir, read_measurements
from prenet_gnn.errors import PreNetError
from prenet_gnn.memory.iteration import follow
from prenet_gnn.memory.peak import ALLOWANCE, Allowance, estimate, usable_bytes
from prenet_gnn.training.store import base_key
from prenet_gnn.workload.workload import Workload
from tracing import OpGraph, TraceError, zoo

# Batch sizes that the benchmark tries, largest first.
LADDER = (512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class Case:
    """One batch size of one model: whether it fitted, and its bytes by cuDNN's share."""

    model: str
    family: str
    channels_last: bool
    batch_size: int
    fitted: bool
    allocated: tuple[int, ...]
    limit_bytes: int
    memory_bytes: int = 0
    asked: dict[str, int] = field(default_factory=dict)

    def fits(self, allowance: Allowance) -> bool:
        """The verdict under some constants."""
        share = allowance.cudnn_share
        if self.channels_last:
            share = allowance.cudnn_share_channels_last
        need = self.allocated[SHARES.index(share)] * allowance.fragmentation
        return need + allowance.eager_context_bytes <= self.limit_bytes

    def fits_by(self, tool: str) -> bool:
        """The verdict of another tool."""
        return fits(tool, self.asked[tool], self.memory_bytes)


def _rows(models: int, seed: int) -> pd.DataFrame:
    frame = read_measurements(find_data_dir(None))
    rows = frame[(frame["source"] == "timm") & (frame["mode"] == "train")].copy()
    rows["key"], rows["family"] = graph_requests(rows), families(rows)
    names = sorted(rows["model"].unique())
    drawn = np.random.default_rng(seed).choice(names, min(models, len(names)), replace=False)
    return rows[rows["model"].isin(set(drawn))]


def kept() -> Path:
    """The folder of what was found out per model; graphs of another tracer have another."""
    from tracing import TRACER_VERSION

    folder = cache_root() / "memory-verdict" / f"tracer-{TRACER_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def cases(models: int, seed: int, *, again: bool = False) -> Iterator[Case]:
    """Both ends of every row of the drawn models; those of earlier runs are read."""
    folder = kept()
    rows = _rows(models, seed)
    build_cache({base_key(key) for key in rows["key"]}, workers=1, progress=True)
    for key, part in rows.groupby("key"):
        path = folder / f"{key.stem}.json"
        if again or not path.exists():
            try:
                found = _cases(cached_graph(key), part, asked_about(key))
                write_whole(path, json.dumps([asdict(case) for case in found]))
            except (PreNetError, TraceError) as error:
                print(f"left out {key.model}: {error}")
                continue
        for case in json.loads(path.read_text(encoding="utf-8")):
            yield Case(**case | {"allocated": tuple(case["allocated"])})


def asked_about(key: GraphKey) -> Question | None:
    """The model of a row for the other tools; None where it is not built today."""
    try:
        model, args, _ = zoo.build(
            f"{key.library}:{key.model}", batch_size=2, image_size=key.image_size or None
        )
    except TraceError:
        return None
    return Question(model, tuple(args[0].shape[1:]), 2, half=False, optimizer="sgd_momentum")


def _cases(graph: OpGraph, rows: pd.DataFrame, question: Question | None) -> Iterator[Case]:
    sized: dict[int, OpGraph] = {}
    for row in rows.itertuples():
        step = LADDER.index(int(row.batch_size))
        for batch_size in LADDER[max(step - 1, 0) : step + 1]:
            scaled = sized.setdefault(batch_size, graph.with_batch_size(batch_size))
            workload = Workload(
                precision=row.precision, optimizer=row.optimizer, framework=row.framework
            )
            followed = follow(scaled, workload)
            allowances = [replace(ALLOWANCE, cudnn_share=share) for share in SHARES]
            peaks = (estimate(followed, workload, allowance) for allowance in allowances)
            hardware = get_hardware(row.device)
            yield Case(
                row.model,
                row.family,
                bool(row.channels_last),
                batch_size,
                batch_size == row.batch_size,
                tuple(peak.allocated_bytes for peak in peaks),
                usable_bytes(hardware),
                int(hardware.memory_bytes),
                answers(question, batch_size, row.precision, row.optimizer),
            )
