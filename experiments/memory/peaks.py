"""Measured peaks of memory.csv.gz beside what predictors say, where the model can be built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.memory.decoders import DECODERS, decoder, decoder_graph
from experiments.memory.tools import Question, answers
from prenet_gnn.common.files import write_whole
from prenet_gnn.data.tables import find_data_dir, read_memory
from prenet_gnn.memory.peak import peak_memory
from prenet_gnn.workload.workload import Workload
from tracing import OpGraph, trace, zoo

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


def measured(
    largest_parameters: float, folder: Path, limit: int | None = None, *, again: bool = False
) -> pd.DataFrame:
    """Measured peaks of the rows whose model can be built, beside those of all predictors.

    Args:
        largest_parameters: Larger models are left out.
        folder: Keeps what was found for each row; a stopped run goes on from there.
        limit: No more rows than this.
        again: Forget what earlier runs found.
    """
    table = read_memory(find_data_dir(None))
    found: list[dict[str, Any]] = []
    for number, row in enumerate(table.itertuples()):
        if limit is not None and len(found) >= limit:
            break
        path = folder / f"peak-{number}.json"
        if again or not path.exists():
            said = _said(row, largest_parameters)
            write_whole(path, json.dumps(said))
            print(row.source, row.model, said, flush=True)
        said = json.loads(path.read_text(encoding="utf-8"))
        if said:
            errors = {name: value / row.peak_memory_bytes - 1 for name, value in said.items()}
            found.append({"source": row.source, "model": row.model, **errors})
    print(f"{len(found)} of {len(table)} rows have a model that is built here")
    return pd.DataFrame(found)


def _said(row: Any, largest_parameters: float) -> dict[str, int]:
    """Peaks in bytes by predictor; empty where the model is not built or too large."""
    graph = _graph(row)
    if graph is None or graph.total_params > largest_parameters:
        return {}
    framework = "torch-2.0" if row.source == "gpumemnet" else "torch-2.3"
    workload = Workload(
        precision=row.precision, optimizer=row.optimizer or "adamw", framework=framework
    )
    kind = "device_bytes" if row.memory_kind == "nvidia_smi" else "allocated_bytes"
    return {"ours": int(getattr(peak_memory(graph, workload), kind)), **_others(row, workload)}


def _others(row: Any, workload: Workload) -> dict[str, int]:
    """What the other tools say of a row; they know no adapters, so only of full training."""
    batch_size, precision = int(row.batch_size), workload.precision
    if row.model in BUILT:
        model, args, kwargs = _build(row)
        tokens = not args
        shape = tuple((kwargs["input_ids"] if tokens else args[0]).shape[1:])
    else:
        if _method(row) != "full":
            return {}
        model, shape, tokens = decoder(row.model), (int(row.seq_len),), True
    question = Question(model, shape, batch_size, False, workload.optimizer, tokens)
    return answers(question, batch_size, precision, workload.optimizer)


def peak_rows(peaks: pd.DataFrame) -> list[dict[str, object]]:
    """Mean absolute error and bias by source and predictor, on the rows that one answers."""
    rows: list[dict[str, object]] = []
    if peaks.empty:
        return rows
    predictors = [name for name in peaks.columns if name not in ("source", "model")]
    for source, part in peaks.groupby("source"):
        for name in predictors:
            errors = part[name].dropna()
            if len(errors):
                values = {"mape": round(float(errors.abs().mean()), 4)}
                values["bias"] = round(float(errors.mean()), 4)
                rows.append({"source": source, "predictor": name, "peaks": len(errors), **values})
    return rows


def _method(row: Any) -> str:
    return str(json.loads(row.config or "{}").get("method", "")).lower()


def _build(row: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    return zoo.build(
        BUILT[row.model],
        batch_size=int(row.batch_size),
        image_size=int(row.image_size) or None,
        seq_len=int(row.seq_len) or None,
    )


def _graph(row: Any) -> OpGraph | None:
    """The graph of a row; None where the model or the quantised weights cannot be built."""
    method = _method(row)
    if row.source == "litgpt" and row.precision == "bf16" and method in ("lora", "full"):
        if row.model not in DECODERS:
            return None
        return decoder_graph(row.model, int(row.batch_size), int(row.seq_len), method)
    if row.model not in BUILT:
        return None
    model, args, kwargs = _build(row)
    return trace(model, args, kwargs)
