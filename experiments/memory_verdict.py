"""Checks predicted memory: does an iteration fit, and how large is its peak.

The training rows of timm were measured on a 24 GB device; the batch started at 512 and was lowered
one step at a time until the run fitted. So every row fits, and one step up does not. Constants are
fitted on half of the families and judged on the other half. Peaks are compared with the rows of
memory.csv.gz whose models can be built.

    python -m experiments.memory_verdict --models 150
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.adapters import DECODERS, decoder_graph
from prenet_gnn.data.families import families
from prenet_gnn.data.graphs import load_graph
from prenet_gnn.data.keys import GraphKey, graph_requests
from prenet_gnn.data.tables import find_data_dir, read_measurements, read_memory
from prenet_gnn.errors import PreNetError
from prenet_gnn.features.attention import eager_attention
from prenet_gnn.features.template import as_training
from prenet_gnn.hardware import get_hardware
from prenet_gnn.memory import ALLOWANCE, MIB, Allowance, peak_memory, usable_bytes
from prenet_gnn.training.encoding import base_key
from prenet_gnn.workload import Workload
from tracing import OpGraph, TraceError, trace, zoo
from tracing.loss import with_loss

RESULTS = Path(__file__).parent / "results" / "memory.csv"
# Batch sizes that the benchmark tries, largest first.
LADDER = (512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
FRAGMENTATIONS = tuple(1.0 + 0.01 * step for step in range(16))
CONTEXTS_MIB = (700, 1000, 1400, 1800)
# Name in memory.csv.gz -> spec of the zoo; detection models there are close relatives.
BUILT = {
    "vgg16": "torchvision:vgg16",
    "resnet50": "torchvision:resnet50",
    "mobilenet_v2": "torchvision:mobilenet_v2",
    "efficientnet_b0": "torchvision:efficientnet_b0",
    "inception_v3": "torchvision:inception_v3",
    "bert-base-uncased": "transformers:bert-base-uncased",
    "bert-large-uncased": "transformers:bert-large-uncased",
    "gpt2-large": "transformers:gpt2-large",
    "gpt2-xl": "transformers:gpt2-xl",
}


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

    def fits(self, allowance: Allowance) -> bool:
        """The verdict under some constants."""
        share = allowance.cudnn_share
        if self.channels_last:
            share = allowance.cudnn_share_channels_last
        need = self.allocated[SHARES.index(share)] * allowance.fragmentation
        return need + allowance.eager_context_bytes <= self.limit_bytes


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


def cases(models: int, seed: int) -> Iterator[Case]:
    """Both ends of every row of the drawn models."""
    for key, rows in _rows(models, seed).groupby("key"):
        try:
            yield from _cases(training_graph(key), rows)
        except (PreNetError, TraceError) as error:
            print(f"left out {key.model}: {error}")


def _cases(graph: OpGraph, rows: pd.DataFrame) -> Iterator[Case]:
    sized: dict[int, OpGraph] = {}
    for row in rows.itertuples():
        step = LADDER.index(int(row.batch_size))
        for batch_size in LADDER[max(step - 1, 0) : step + 1]:
            scaled = sized.setdefault(batch_size, graph.with_batch_size(batch_size))
            workload = Workload(
                precision=row.precision, optimizer=row.optimizer, framework=row.framework
            )
            allocated = tuple(
                peak_memory(
                    scaled, workload, allowance=replace(ALLOWANCE, cudnn_share=share)
                ).allocated_bytes
                for share in SHARES
            )
            yield Case(
                row.model,
                row.family,
                bool(row.channels_last),
                batch_size,
                batch_size == row.batch_size,
                allocated,
                usable_bytes(get_hardware(row.device)),
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


def verdicts(models: int, seed: int) -> list[dict[str, object]]:
    """Rows of the result table on fitting, with what the shipped constants give."""
    found = list(cases(models, seed))
    fit, held_out = halves(found, seed)
    fitted = fitted_constants(fit)
    print(fitted)
    rows: list[dict[str, object]] = []
    for name, part, allowance in (
        ("fit half, fitted", fit, fitted),
        ("other half, fitted", held_out, fitted),
        ("all, shipped (not held out)", found, ALLOWANCE),
    ):
        fits, not_fits = shares(part, allowance)
        rows.append(
            {"group": name, "rows": len(part), "fits_right": fits, "one_up_right": not_fits}
        )
    return rows


def measured(largest_parameters: float) -> pd.DataFrame:
    """Predicted and measured peaks of the rows whose model can be built."""
    table = read_memory(find_data_dir(None))
    found = []
    for row in table.itertuples():
        graph = _graph(row)
        if graph is None or graph.total_params > largest_parameters:
            continue
        framework = "torch-2.0" if row.source == "gpumemnet" else "torch-2.3"
        workload = Workload(
            precision=row.precision, optimizer=row.optimizer or "adamw", framework=framework
        )
        kind = "device_bytes" if row.memory_kind == "nvidia_smi" else "allocated_bytes"
        predicted = getattr(peak_memory(graph, workload), kind)
        found.append(
            {
                "source": row.source,
                "model": row.model,
                "batch_size": row.batch_size,
                "kind": kind,
                "measured": row.peak_memory_bytes,
                "predicted": predicted,
                "error": predicted / row.peak_memory_bytes - 1,
            }
        )
        print(found[-1], flush=True)
    print(f"{len(table) - len(found)} of {len(table)} rows have a model that is not built here")
    return pd.DataFrame(found)


def _graph(row: Any) -> OpGraph | None:
    """The graph of a row; None where the model or the quantised weights cannot be built."""
    method = str(json.loads(row.config or "{}").get("method", "")).lower()
    if row.source == "litgpt" and row.precision == "bf16" and method in ("lora", "full"):
        if row.model not in DECODERS:
            return None
        return decoder_graph(row.model, int(row.batch_size), int(row.seq_len), method)
    if row.model not in BUILT:
        return None
    model, args, kwargs = zoo.build(
        BUILT[row.model],
        batch_size=int(row.batch_size),
        image_size=int(row.image_size) or None,
        seq_len=int(row.seq_len) or None,
    )
    return trace(model, args, kwargs)


def main() -> None:
    """Prints and saves both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--largest-parameters", type=float, default=2e10)
    parser.add_argument("--skip-measured", action="store_true")
    options = parser.parse_args()
    rows = verdicts(options.models, options.seed)
    print(pd.DataFrame(rows).to_string(index=False))
    if not options.skip_measured:
        peaks = measured(options.largest_parameters)
        print(peaks.to_string(index=False))
        for source, part in peaks.groupby("source"):
            mape = float(part["error"].abs().mean())
            rows.append({"group": f"peak, {source}", "rows": len(part), "mape": mape})
    RESULTS.parent.mkdir(exist_ok=True)
    pd.DataFrame(rows).to_csv(RESULTS, index=False)


if __name__ == "__main__":
    main()
