"""Fills the graph cache: builds models, traces them and stores the graphs, in many processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prenet_gnn.common.files import replacing, write_whole
from prenet_gnn.common.processes import run_all
from prenet_gnn.data.keys import GraphKey, error_path, graph_path, zoo_spec

if TYPE_CHECKING:
    from torch import nn

    from tracing import OpGraph

# Models of one chunk share their imports; small chunks keep the workers evenly busy.
CHUNK = 8


def trace_missing(
    keys: list[GraphKey],
    root: Path,
    data_dir: Path | None,
    *,
    workers: int,
    deadline: float | None,
    advance: Callable[[int], None],
) -> None:
    """Traces and stores keys; one whose process dies is recorded as failed.

    Args:
        keys: What the cache lacks.
        root: Cache folder.
        data_dir: Folder of the measured data.
        workers: Processes; 0 traces in this one.
        deadline: By the monotonic clock; no further chunk is begun then.
        advance: Called with the number of keys that are done.
    """
    work, chunks = partial(trace_keys, root=root, data_dir=data_dir), chunks_of(keys)
    while chunks:
        alone: list[list[GraphKey]] = []
        for outcome in run_all(work, chunks, workers, deadline=deadline):
            chunk = outcome.task
            rest = [key for key in chunk if outcome.died and not is_done(key, root)]
            if rest == chunk and len(chunk) == 1:
                reason = "the tracing process died, perhaps for lack of memory"
                write_error(chunk[0], root, reason)
                rest = []
            alone += [[key] for key in rest]
            advance(len(chunk) - len(rest))
        chunks = alone


def is_done(key: GraphKey, root: Path) -> bool:
    """Whether the graph, or the reason why there is none, is stored."""
    return graph_path(key, root).exists() or error_path(key, root).exists()


def chunks_of(keys: list[GraphKey]) -> list[list[GraphKey]]:
    """Chunks of keys in order; a model's two attention flavours stay in one chunk."""
    chunks: list[list[GraphKey]] = []
    for key in sorted(keys, key=lambda k: (k.library, k.model, k.image_size, k.mode, k.attention)):
        same = chunks and (chunks[-1][-1].library, chunks[-1][-1].model) == (key.library, key.model)
        if chunks and (len(chunks[-1]) < CHUNK or same):
            chunks[-1].append(key)
        else:
            chunks.append([key])
    return chunks


def trace_keys(keys: Sequence[GraphKey], root: Path, data_dir: Path | None) -> None:
    """Traces and stores every key; a failure is stored in place of the graph."""
    made: dict[GraphKey, tuple[OpGraph, bool]] = {}
    for key in keys:
        if is_done(key, root):
            continue
        try:
            plain = replace(key, attention="")
            graph, has_choice = made.get(plain, (None, True))
            if graph is None or has_choice:
                graph, has_choice = _trace(key, root, data_dir)
            # Without attention both flavours are one graph; larger ones are not kept.
            made = {plain: (graph, has_choice)}
            _store(key, root, graph)
        except Exception as error:
            text = " ".join(str(error).split()) or "no message"
            write_error(key, root, f"{type(error).__name__}: {text}"[:2000])


def write_error(key: GraphKey, root: Path, message: str) -> None:
    """Stores why a key cannot be traced, whole or not at all."""
    text = json.dumps({"key": asdict(key), "error": message}, indent=2) + "\n"
    write_whole(error_path(key, root), text)


def _trace(key: GraphKey, root: Path, data_dir: Path | None) -> tuple[OpGraph, bool]:
    """The graph, and whether its attention flavour matters."""
    from tracing import BATCH_MARKER, trace, zoo

    model, args, kwargs = zoo.build(
        zoo_spec(key, data_dir, root),
        batch_size=BATCH_MARKER,
        image_size=key.image_size or None,
        seq_len=key.seq_len or None,
        mode=key.mode,
        attention=key.attention if key.library != "torchvision" else None,
    )
    # Every attention module of timm that can choose carries this attribute.
    has_choice = key.library != "timm" or any(hasattr(m, "fused_attn") for m in model.modules())
    graph = trace(
        model,
        args,
        {**kwargs, **_padding_mask(model, kwargs)},
        unknown_ops="ignore",
    )
    return graph, has_choice


def _padding_mask(model: nn.Module, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The mask that Switch Transformers makes itself in a real run, but not under export."""
    kind = getattr(getattr(model, "config", None), "model_type", "")
    if kind != "switch_transformers" or "attention_mask" in kwargs:
        return {}
    import torch

    return {"attention_mask": torch.ones_like(kwargs["input_ids"])}


def _store(key: GraphKey, root: Path, graph: OpGraph) -> None:
    with replacing(graph_path(key, root)) as draft:
        graph.to_json(draft)
