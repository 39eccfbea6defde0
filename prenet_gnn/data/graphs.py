"""A cache of traced graphs on disk: each model is traced once, in parallel, and survives a kill.

Graphs are traced at the batch size `tracing.BATCH_MARKER` and rescaled when they are used. A file
appears under its name only when it is complete, so a killed build goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prenet_gnn.common.files import remove_abandoned
from prenet_gnn.data.keys import (
    GraphKey,
    cache_root,
    error_path,
    graph_folder,
    graph_path,
    graph_requests,
)
from prenet_gnn.data.tracer import is_done, trace_missing
from prenet_gnn.errors import ConfigError, DataError

if TYPE_CHECKING:
    from tracing import OpGraph


@dataclass(slots=True)
class CacheReport:
    """What a build of the cache did.

    Attributes:
        requested: Distinct graphs asked for.
        present: Graphs and recorded failures that were there already.
        traced: Graphs made now.
        failed: Message per key of what cannot be traced, failures of earlier builds included.
        left: Graphs not made because the time was up.
        seconds: Wall-clock time of the build.
    """

    requested: int = 0
    present: int = 0
    traced: int = 0
    failed: dict[GraphKey, str] = field(default_factory=dict)
    left: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The report, ready for JSON."""
        failed = [{**asdict(key), "error": text} for key, text in sorted(self.failed.items())]
        counts = ("requested", "present", "traced", "left", "seconds")
        return {**{name: getattr(self, name) for name in counts}, "failed": failed}


def build_cache(
    requests: Iterable[GraphKey],
    folder: str | Path | None = None,
    workers: int = 2,
    limit_s: float | None = None,
    *,
    data_dir: str | Path | None = None,
    retry_failed: bool = False,
    progress: bool = False,
) -> CacheReport:
    """Traces every requested graph that the cache does not have.

    Args:
        requests: Keys; repeated ones count once.
        folder: Cache folder; see `cache_root`.
        workers: Processes; 0 traces in this one.
        limit_s: Start no further chunk of models after this time.
        data_dir: Folder of the measured data, where the configs of NeuSight's models lie.
        retry_failed: Try again what failed before.
        progress: Show a progress bar with the remaining time on standard error.

    Raises:
        ConfigError: `workers` is negative.
        DataError: The cache folder cannot be written.
    """
    if workers < 0:
        raise ConfigError(f"workers must be 0 or more, not {workers}.")
    start = time.monotonic()
    root = cache_root(folder)
    _prepare(graph_folder(root))
    keys = sorted(set(requests))
    report = CacheReport(requested=len(keys))
    if retry_failed:
        for key in keys:
            error_path(key, root).unlink(missing_ok=True)
    missing = [key for key in keys if not is_done(key, root)]
    report.present = len(keys) - len(missing)
    with _bar(len(missing), progress) as advance:
        trace_missing(
            missing,
            root,
            Path(data_dir) if data_dir else None,
            workers=workers,
            deadline=None if limit_s is None else start + limit_s,
            advance=advance,
        )
    done = [key for key in missing if is_done(key, root)]
    report.left = len(missing) - len(done)
    report.failed = {key: load_error(key, root) for key in keys if error_path(key, root).exists()}
    report.traced = sum(graph_path(key, root).exists() for key in done)
    report.seconds = time.monotonic() - start
    return report


def cache_measurements(
    data_dir: str | Path | None = None, workers: int = 2, *, progress: bool = False
) -> CacheReport:
    """Traces every model that the measured training rows need."""
    from prenet_gnn.data.tables import find_data_dir, read_measurements, training_rows

    where = find_data_dir(data_dir)
    keys = graph_requests(training_rows(read_measurements(where)))
    return build_cache(keys, workers=workers, data_dir=where, progress=progress)


def load_graph(key: GraphKey, folder: str | Path | None = None) -> OpGraph:
    """Reads a graph of the cache; use `graph.with_batch_size` for the batch of a row.

    Raises:
        DataError: The graph is not in the cache, could not be traced, or its file is damaged.
    """
    from tracing import OpGraph

    path = graph_path(key, folder)
    if not path.exists():
        if error_path(key, folder).exists():
            raise DataError(f"{key.stem} could not be traced: {load_error(key, folder)}")
        raise DataError(f"{key.stem} is not in the cache {path.parent}: run `prenet data cache`.")
    try:
        return OpGraph.from_json(path)
    except Exception as error:
        text = " ".join(str(error).split())
        raise DataError(
            f"{path} is damaged ({text}): delete it and run `prenet data cache` again."
        ) from error


def load_error(key: GraphKey, folder: str | Path | None = None) -> str:
    """Why a graph could not be traced; empty where no failure is recorded."""
    path = error_path(key, folder)
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["error"])
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError):
        return f"{path} is not readable"


def _prepare(folder: Path) -> None:
    """Makes the folder and clears away what killed builds left behind."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_abandoned(folder)
    except OSError as error:
        raise DataError(f"the cache folder {folder} cannot be used: {error.strerror}.") from None


@contextlib.contextmanager
def _bar(total: int, show: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar with the remaining time; yields the function that advances it."""
    if not show or not total:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("tracing"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("tracing", total=total)
        yield lambda count: bar.advance(task, count)
