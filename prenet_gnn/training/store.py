"""Encodes the graph of every measured row once and keeps the arrays on disk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from prenet_gnn.common.files import replacing
from prenet_gnn.common.processes import run_all
from prenet_gnn.data.keys import GraphKey, graph_path
from prenet_gnn.encoding.encode import Encoded, encode
from prenet_gnn.encoding.template import as_training, build_template, template_key
from prenet_gnn.training.operators import LIBRARY as OPERATOR
from prenet_gnn.training.operators import operator_graph
from prenet_gnn.workload.frameworks import computes_in_single, version_in

# Raise when features change: stored arrays of another version are not read.
ENCODING_VERSION = "12"
# Models of timm whose forward differs between training and inference: they are traced apart.
OWN_TRAINING_GRAPH = ("distilled", "inception_v3", "levit")
# Graphs that a process encodes at a time; starting one costs about as much as a few such chunks.
CHUNK, FEW_CHUNKS = 16, 4
PARTS = tuple(f.name for f in fields(Encoded))


@dataclass(frozen=True, slots=True, order=True)
class EntryKey:
    """What an encoded graph depends on."""

    graph: GraphKey
    precision: str
    batch_size: int  # 0 = as traced
    single_attention: bool = False  # see `workload.frameworks.computes_in_single`


def entry_precision(precision: str) -> str:
    """Precisions with equal arrays share an entry."""
    return {"amp_fp16": "amp_fp16", "amp_bf16": "amp_fp16", "tf32": "fp32", "bf16": "fp16"}.get(
        precision, precision
    )


def entry_key(graph: GraphKey, row: Any) -> EntryKey:
    """What the graph of a row of `read_measurements` is encoded as."""
    single = graph.attention == "sdpa" and computes_in_single(version_in(str(row.framework)))
    return EntryKey(graph, entry_precision(str(row.precision)), int(row.batch_size), single)


def base_key(key: GraphKey) -> GraphKey:
    """The graph that is traced for a key; the rest is a rewrite of it."""
    if key.library != "timm":
        return key
    if key.mode == "train" and any(part in key.model for part in OWN_TRAINING_GRAPH):
        return key
    return GraphKey(key.library, key.model, key.image_size, key.seq_len, "infer", "sdpa")


def encode_graph(
    key: GraphKey, wanted: Iterable[EntryKey], folder: Path | None = None
) -> list[Encoded]:
    """Encodes one cached graph for several precisions and batch sizes."""
    from prenet_gnn.data.graphs import load_graph
    from prenet_gnn.encoding.attention import eager_attention
    from tracing.graph.loss import with_loss

    base = base_key(key)
    graph = operator_graph(key) if key.library == OPERATOR else load_graph(base, folder)
    if key.attention == "eager":
        graph = eager_attention(graph)
    if key.mode == "train" and base.mode == "infer":
        graph = with_loss(as_training(graph))
    templates = {}
    result = []
    for entry in wanted:
        name = (template_key(entry.precision), entry.single_attention)
        if name not in templates:
            templates[name] = build_template(
                graph, entry.precision, single_attention=entry.single_attention
            )
        batch_size = entry.batch_size or graph.batch_size
        result.append(encode(templates[name], batch_size, entry.precision))
    return result


def _encode_many(
    wanted: Sequence[tuple[GraphKey, list[EntryKey]]], folder: Path | None
) -> tuple[dict[EntryKey, Encoded], dict[GraphKey, str]]:
    made: dict[EntryKey, Encoded] = {}
    failed: dict[GraphKey, str] = {}
    for graph, entries in wanted:
        try:
            made |= zip(entries, encode_graph(graph, entries, folder), strict=True)
        except Exception as error:
            failed[graph] = f"{type(error).__name__}: {error}"
    return made, failed


class Store:
    """Encoded graphs by key."""

    def __init__(self) -> None:
        """Starts empty."""
        self.entries: dict[EntryKey, Encoded] = {}
        self.failed: dict[GraphKey, str] = {}

    def fill(
        self, wanted: Iterable[EntryKey], folder: Path | None = None, workers: int = 2
    ) -> None:
        """Encodes what is missing; graphs that are not in the cache are named in `failed`."""
        by_graph: dict[GraphKey, list[EntryKey]] = defaultdict(list)
        for key in sorted(set(wanted) - set(self.entries)):
            by_graph[key.graph].append(key)
        present = []
        for item in by_graph.items():
            if item[0].library == OPERATOR or graph_path(base_key(item[0]), folder).exists():
                present.append(item)
            else:
                self.failed[item[0]] = "not in the graph cache"
        chunks = [present[i : i + CHUNK] for i in range(0, len(present), CHUNK)]
        processes = 0 if workers < 2 or len(chunks) < FEW_CHUNKS else workers
        for outcome in run_all(partial(_encode_many, folder=folder), chunks, processes):
            if outcome.result is None:
                died = dict.fromkeys((graph for graph, _ in outcome.task), "its process died")
                self.failed.update(died)
            else:
                made, failed = outcome.result
                self.entries.update(made)
                self.failed.update(failed)

    def shared(self, key: EntryKey) -> EntryKey:
        """The key of older attention where that has the same arrays, so that rows share them."""
        older = replace(key, single_attention=False)
        if older == key or older not in self.entries:
            return key
        mine, its = self.entries[key], self.entries[older]
        same = all(np.array_equal(getattr(mine, part), getattr(its, part)) for part in PARTS)
        return older if same else key

    def save(self, path: Path) -> None:
        """Writes all entries to one `.npz` without pickles, whole or not at all."""
        keys = list(self.entries)
        values = [self.entries[key] for key in keys]
        arrays: dict[str, np.ndarray] = {
            "version": np.array(ENCODING_VERSION),
            "graphs": np.array(
                [
                    "\t".join(
                        map(
                            str,
                            (
                                k.graph.library, k.graph.model, k.graph.image_size, k.graph.seq_len,
                                k.graph.mode, k.graph.attention, k.precision, k.batch_size,
                                int(k.single_attention),
                            ),
                        )
                    )
                    for k in keys
                ]
            ),
        }  # fmt: skip
        for part in PARTS:
            parts = [getattr(value, part) for value in values]
            axis = 1 if part == "edges" else 0
            sizes = [p.shape[axis] if part != "totals" else 1 for p in parts]
            arrays[f"{part}_sizes"] = np.array(sizes)
            joined = np.stack(parts) if part == "totals" else np.concatenate(parts, axis=axis)
            arrays[part] = joined.astype(np.float16) if part == "numbers" else joined
        path.parent.mkdir(parents=True, exist_ok=True)
        save: Any = np.savez  # its stubs mix up arrays and options
        with replacing(path) as draft:
            save(draft, **arrays)

    @classmethod
    def load(cls, path: Path) -> Store:
        """Reads a file that `save` wrote; one of another version gives an empty store."""
        store = cls()
        if not path.exists():
            return store
        with np.load(path, allow_pickle=False) as data:
            if str(data["version"]) != ENCODING_VERSION:
                return store
            columns = {part: _slices(data, part) for part in PARTS}
            for i, text in enumerate(data["graphs"]):
                *graph, precision, batch, single = str(text).split("\t")
                key = GraphKey(graph[0], graph[1], int(graph[2]), int(graph[3]), *graph[4:])
                parts = {part: columns[part][i] for part in PARTS}
                store.entries[EntryKey(key, precision, int(batch), single == "1")] = Encoded(
                    **parts
                )
        return store


def _slices(data: np.lib.npyio.NpzFile, part: str) -> list[np.ndarray]:
    array = data[part]
    if part == "totals":
        return list(array)
    if part == "numbers":
        array = array.astype(np.float32)
    ends = np.cumsum(data[f"{part}_sizes"])[:-1]
    return list(np.split(array, ends, axis=1 if part == "edges" else 0))
