"""From a folder of measurements to rows to learn from: traces and encodes what the cache lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from prenet_gnn.data.splits import chip_name
from prenet_gnn.errors import DataError
from prenet_gnn.training.rows import Rows, load_rows, operator_rows
from prenet_gnn.training.store import Store

ENCODED = "encoded.npz"
ENCODED_OPERATORS = "encoded-operators.npz"


def prepare_rows(data: str | Path | None, *, workers: int = 2, progress: bool = True) -> Rows:
    """Measured rows with their encoded graphs; traces and encodes what the cache lacks.

    Raises:
        DataError: There is no data, or none of it can be used.
    """
    from prenet_gnn.data.graphs import build_cache
    from prenet_gnn.data.keys import graph_requests
    from prenet_gnn.data.tables import find_data_dir, read_measurements, training_rows
    from prenet_gnn.training.store import base_key, entry_key

    where = find_data_dir(data)
    frame = training_rows(read_measurements(where))
    keys = list(graph_requests(frame))
    build_cache({base_key(k) for k in keys}, workers=workers, data_dir=where, progress=progress)
    with _kept(ENCODED) as store:
        store.fill(entry_key(k, row) for k, row in zip(keys, frame.itertuples(), strict=True))
    rows = load_rows(frame, keys, store)
    if not len(rows):
        raise DataError("no row of the data has a graph: see `prenet data check`.")
    return rows


def prepare_operators(data: str | Path | None) -> Rows:
    """Operators that were timed alone, with their one-node graphs."""
    from prenet_gnn.data.tables import find_data_dir, read_operators
    from prenet_gnn.training.operators import choose

    frame = choose(read_operators(find_data_dir(data)))
    with _kept(ENCODED_OPERATORS) as store:
        return operator_rows(frame, store)


@contextmanager
def _kept(name: str) -> Iterator[Store]:
    """The encoded graphs of a file of the cache, which is written anew where some were lacking."""
    from prenet_gnn.data.keys import cache_root

    path = cache_root() / name
    store = Store.load(path)
    known = len(store.entries)
    yield store
    if len(store.entries) > known:
        store.save(path)


def without_chips(operators: Rows, devices: Collection[str]) -> Rows:
    """Operators timed alone on other chips than those of some devices."""
    held_out = {chip_name(device) for device in devices}
    kept = [chip_name(str(device)) not in held_out for device in operators.frame["gpu"]]
    return operators.only(np.flatnonzero(kept))
