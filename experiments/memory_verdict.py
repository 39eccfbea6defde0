"""Checks predicted memory: does an iteration fit, and how large is its peak.

    python -m experiments.memory_verdict [--models 150] [--again] [--quick]

The training rows of timm were measured on a 24 GB device; the batch started at 512 and was lowered
one step at a time until the run fitted. So every row fits, and one step up does not. Constants are
fitted on half of the families and judged on the other half. Peaks are compared with the rows of
memory.csv.gz whose models can be built. `accelerate` and `torch-kitsune` are asked the same where
they are installed (`experiments.memory_tools`).

What was found out per model lies in the cache folder, so a stopped run goes on where it was; only
figures over groups of rows are written to `results/memory.json`.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from experiments import memory_tools
from experiments.memory_peaks import measured, peak_rows
from experiments.memory_tools import Question, answers
from experiments.provenance import provenance, write_result
from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.data.families import families
from prenet_gnn.data.graphs import build_cache, load_graph
from prenet_gnn.data.keys import GraphKey, cache_root, graph_requests
from prenet_gnn.data.tables import find_data_dir, read_measurements
from prenet_gnn.encoding.attention import eager_attention
from prenet_gnn.encoding.template import as_training
from prenet_gnn.errors import PreNetError
from prenet_gnn.memory.iteration import follow
from prenet_gnn.memory.peak import ALLOWANCE, MIB, Allowance, estimate, usable_bytes
from prenet_gnn.training.encoding import base_key
from prenet_gnn.workload.workload import Workload
from tracing import OpGraph, TraceError, zoo
from tracing.capture.loss import with_loss

# Batch sizes that the benchmark tries, largest first.
LADDER = (512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
FRAGMENTATIONS = tuple(1.0 + 0.01 * step for step in range(16))
CONTEXTS_MIB = (700, 1000, 1400, 1800)


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
        return memory_tools.fits(tool, self.asked[tool], self.memory_bytes)


def training_graph(key: GraphKey) -> OpGraph:
    """The graph of a training row."""
    base = base_key(key)
    graph = load_graph(base)
    if key.attention == "eager":
        graph = eager_attention(graph)
    return with_loss(as_training(graph)) if base.mode == "infer" else graph


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
                graph = training_graph(key)
                found = [asdict(case) for case in _cases(graph, part, asked_about(key))]
            except (PreNetError, TraceError) as error:
                print(f"left out {key.model}: {error}")
                continue
            draft = path.with_suffix(".draft")
            draft.write_text(json.dumps(found), encoding="utf-8")
            draft.replace(path)
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
            allocated = tuple(
                estimate(followed, workload, allowance).allocated_bytes for allowance in allowances
            )
            hardware = get_hardware(row.device)
            yield Case(
                row.model,
                row.family,
                bool(row.channels_last),
                batch_size,
                batch_size == row.batch_size,
                allocated,
                usable_bytes(hardware),
                int(hardware.memory_bytes),
                answers(question, batch_size, row.precision, row.optimizer),
            )


def shares(found: list[Case], allowance: Allowance) -> tuple[float, float]:
    """Share that is called fitting where it fitted, and not fitting one step up."""
    right = {True: [], False: []}
    for case in found:
        right[case.fitted].append(case.fits(allowance) == case.fitted)
    return float(np.mean(right[True] or [np.nan])), float(np.mean(right[False] or [np.nan]))


def fitted_constants(found: list[Case]) -> Allowance:
    """The constants with the most right verdicts, both ends weighing the same."""
    options = (
        replace(
            ALLOWANCE,
            cudnn_share=first,
            cudnn_share_channels_last=second,
            fragmentation=fragmentation,
            eager_context_bytes=context * MIB,
        )
        for first, second, fragmentation, context in itertools.product(
            SHARES, SHARES[:4], FRAGMENTATIONS, CONTEXTS_MIB
        )
        if second <= first
    )
    return max(options, key=lambda allowance: sum(shares(found, allowance)))


def halves(found: list[Case], seed: int) -> tuple[list[Case], list[Case]]:
    """Cases of one half of the families and of the other."""
    names = sorted({case.family for case in found})
    drawn = np.random.default_rng(seed).permutation(names)
    chosen: set[str] = set()
    for name in drawn:
        if sum(case.family in chosen for case in found) < len(found) / 2:
            chosen.add(str(name))
    fit = [case for case in found if case.family in chosen]
    return fit, [case for case in found if case.family not in chosen]


def verdicts(found: list[Case], seed: int) -> tuple[list[dict[str, object]], Allowance]:
    """Rows of the result table on fitting, and the constants that were fitted."""
    fit, held_out = halves(found, seed)
    fitted = fitted_constants(fit)
    rows: list[dict[str, object]] = []
    for name, part, allowance in (
        ("fit half, fitted", fit, fitted),
        ("other half, fitted", held_out, fitted),
        ("all, shipped (not held out)", found, ALLOWANCE),
    ):
        fits, not_fits = shares(part, allowance)
        rows.append(_row(name, len(part), fits, not_fits))
    for tool in sorted({name for case in found for name in case.asked}):
        part = [case for case in found if tool in case.asked]
        ends = [
            float(np.mean([c.fits_by(tool) == end for c in part if c.fitted == end] or [np.nan]))
            for end in (True, False)
        ]
        rows.append(_row(tool, len(part), *ends))
        rows.append(_row(f"ours where {tool} answers", len(part), *shares(part, ALLOWANCE)))
    return rows, fitted


def _row(group: str, rows: int, fits_right: float, one_up_right: float) -> dict[str, object]:
    return {
        "group": group,
        "verdicts": rows,
        "fits_right": round(fits_right, 4),
        "one_up_right": round(one_up_right, 4),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints both tables and saves them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--largest-parameters", type=float, default=2e10)
    parser.add_argument("--again", action="store_true", help="forget what earlier runs found")
    parser.add_argument("--quick", action="store_true", help="four models, a smoke test")
    options = parser.parse_args(arguments)
    models = 4 if options.quick else options.models
    found = list(cases(models, options.seed, again=options.again))
    rows, fitted = verdicts(found, options.seed)
    print(pd.DataFrame(rows).to_string(index=False))
    limit = 2 if options.quick else None
    peaks = peak_rows(measured(options.largest_parameters, kept(), limit, again=options.again))
    print(pd.DataFrame(peaks).to_string(index=False))
    if options.quick:
        return
    facts = provenance(
        f"python -m experiments.memory_verdict --models {models}",
        seed=options.seed,
        tools=memory_tools.installed(),
    )
    fitted_values = asdict(fitted)
    write_result("memory", {**facts, "fitted": fitted_values, "verdicts": rows, "peaks": peaks})


if __name__ == "__main__":
    main()
