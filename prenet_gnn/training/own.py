"""Records of `prenet measure` as further training rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from prenet_gnn.calibrated import GraphSource
from prenet_gnn.data.keys import GraphKey, cache_root
from prenet_gnn.errors import DataError, UnknownHardwareError
from prenet_gnn.hardware import get_hardware
from prenet_gnn.measuring.records import MeasuredRecord, read_records
from prenet_gnn.training.encoding import EntryKey, Store, entry_precision
from prenet_gnn.training.rows import Rows, balanced

# Their source, as rows of other sources name theirs.
SOURCE = "prenet measure"
ENCODED_RECORDS = "encoded-records.npz"


def with_records(rows: Rows, files: Sequence[str | Path]) -> Rows:
    """Rows with the measurements of whole models in some records files behind them.

    Raises:
        DataError: A file cannot be read or has no measurement of a whole model, or measures a
            device that the catalogue does not have.
        TraceError: A model cannot be built or traced.
    """
    for path in files:
        rows = _joined(rows, _rows_of(Path(path)))
    return rows


def _rows_of(path: Path) -> Rows:
    records = [r for r in read_records(path) if r.seconds is not None]
    chosen = [r for r in records if not r.model.startswith("layer:")]
    if not chosen:
        raise DataError(f"'{path}' has no measurement of a whole model.")
    frame = pd.DataFrame([_row(record, path) for record in chosen])
    keys, store = _encoded(chosen)
    return Rows(
        frame=frame,
        keys=keys,
        workloads=[record.workload for record in chosen],
        seconds=frame.step_s.to_numpy(dtype=float),
        forward_s=frame.forward_s.to_numpy(dtype=float),
        backward_s=frame.backward_s.to_numpy(dtype=float),
        weight=np.ones(len(chosen)),
        store=store,
    )


def _encoded(records: Sequence[MeasuredRecord]) -> tuple[list[EntryKey], Store]:
    """Keys of the records, and a store that has them all; tracing takes seconds a model."""
    from prenet_gnn.predictor import encoded_graph

    keys = [_key(record) for record in records]
    path = cache_root() / ENCODED_RECORDS
    store, graphs = Store.load(path), GraphSource()
    missing = {k: r for k, r in zip(keys, records, strict=True) if k not in store.entries}
    for key, record in missing.items():
        store.entries[key] = encoded_graph(graphs(record), key.precision)
    if missing:
        store.save(path)
    return keys, store


def _key(record: MeasuredRecord) -> EntryKey:
    sizes = (record.image_size or 0, record.seq_len or 0)
    graph = GraphKey(SOURCE, record.model, *sizes, record.mode)
    return EntryKey(graph, entry_precision(record.precision), record.batch_size)


def _row(record: MeasuredRecord, path: str | Path) -> dict[str, object]:
    library, _, model = record.model.partition(":")
    try:
        gpu = get_hardware(record.hardware).name
    except UnknownHardwareError:
        raise DataError(
            f"'{path}' measures {record.hardware}, which the catalogue does not have: give its "
            "records a name with `python -m experiments.pack_records --hardware`."
        ) from None
    return {
        "source": SOURCE,
        "gpu": gpu,
        "library": library,
        "model": model.partition("?")[0],
        "mode": record.mode,
        "precision": record.precision,
        "batch_size": record.batch_size,
        "framework": record.framework,
        "step_s": record.seconds,
        "forward_s": np.nan if record.forward_s is None else record.forward_s,
        "backward_s": np.nan if record.backward_s is None else record.backward_s,
    }


def _joined(first: Rows, second: Rows) -> Rows:
    frame = pd.concat([first.frame, second.frame], ignore_index=True)
    store = Store()
    store.entries = {**first.store.entries, **second.store.entries}
    return Rows(
        frame=frame,
        keys=[*first.keys, *second.keys],
        workloads=[*first.workloads, *second.workloads],
        seconds=np.concatenate([first.seconds, second.seconds]),
        forward_s=np.concatenate([first.forward_s, second.forward_s]),
        backward_s=np.concatenate([first.backward_s, second.backward_s]),
        weight=balanced(frame),
        store=store,
    )
