"""What one worker process of the graph cache does: build a model, trace it, store the graph."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prenet_gnn.data.keys import GraphKey, error_path, graph_folder, graph_path, zoo_spec

if TYPE_CHECKING:
    from torch import nn

    from tracing import OpGraph

PARENT_CHECK_S = 1.0


def start_worker(parent: int) -> None:
    """Prepares a process: one thread for arithmetic, and an end when the parent is gone.

    A worker whose parent was killed would wait for work for ever.
    """
    import torch

    torch.set_num_threads(1)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def trace_keys(keys: Sequence[GraphKey], root: Path, data_dir: Path | None) -> None:
    """Traces and stores every key; a failure is stored in place of the graph."""
    made: dict[GraphKey, tuple[OpGraph, bool]] = {}
    for key in keys:
        if graph_path(key, root).exists() or error_path(key, root).exists():
            continue
        with _marker(key, root):
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
    path = error_path(key, root)
    draft = path.with_name(f".{key.stem}.pid{os.getpid()}.tmp")
    text = json.dumps({"key": asdict(key), "error": message}, indent=2) + "\n"
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


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
        backend="record",
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
    path = graph_path(key, root)
    draft = path.with_name(f".{key.stem}.pid{os.getpid()}.tmp.json.gz")
    try:
        graph.to_json(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _marker(key: GraphKey, root: Path) -> Iterator[None]:
    """Leaves a note while a key is traced, so that a dead worker can be asked what it was doing."""
    path = graph_folder(root) / f"{key.stem}.pid{os.getpid()}.running"
    path.write_text(json.dumps(asdict(key)), encoding="utf-8")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(1)
