"""The whole of `prenet tune`: sample, workers, report."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from prenet_gnn.data.tables import find_data_dir
from prenet_gnn.errors import ConfigError, PreNetError
from prenet_gnn.tuning.proxy import ROWS, prepare_proxy
from prenet_gnn.tuning.report import write_report
from prenet_gnn.tuning.settings import FILE, TuneConfig
from prenet_gnn.tuning.storage import open_study, storage_address
from prenet_gnn.tuning.supervisor import last_line, show_progress, spawn_worker, supervise
from prenet_gnn.tuning.worker import PROXY

# What may change when a study goes on.
FREE = ("trials", "storage", "pruner")


def run_tuning(
    folder: Path,
    config: TuneConfig,
    *,
    workers: int = 1,
    data: str | Path | None = None,
    progress: bool = True,
) -> Any:
    """Runs a study, or goes on with the one in the folder, and writes what it found.

    Returns:
        The best trial of the study.

    Raises:
        ConfigError: The folder holds a study with other settings.
        PreNetError: A worker failed.
    """
    if workers < 1:
        raise ConfigError(f"workers must be at least 1, not {workers}.")
    _check_same(folder, config)
    if not (folder / PROXY / ROWS).exists():
        find_data_dir(data)  # without data nothing is left behind
    address = storage_address(config.storage, folder)
    study = open_study(address, config.directions)
    prepare_proxy(folder / PROXY, config.proxy, data)
    config.save(folder)
    bar, update = show_progress(config.trials)
    try:
        if progress:
            with bar:
                supervise(study, lambda n: spawn_worker(folder, n), workers, update)
        else:
            supervise(study, lambda n: spawn_worker(folder, n), workers)
    except PreNetError as error:
        lines = [last_line(folder / f"worker-{n}.log") for n in range(workers)]
        reason = next((line for line in lines if line), "no output")
        raise PreNetError(f"{error}: {reason} (see worker-*.log in {folder})") from None
    return write_report(study, folder, config.base)


def _check_same(folder: Path, config: TuneConfig) -> None:
    if not (folder / FILE).exists():
        return
    neutral = {name: getattr(config, name) for name in FREE}
    old = replace(TuneConfig.load(folder), **neutral)
    before, after = (json.loads(json.dumps(asdict(c))) for c in (old, config))
    changed = sorted(name for name in after if after[name] != before[name])
    if changed:
        raise ConfigError(
            f"the study in '{folder}' was started with another {', '.join(changed)}: give another "
            "folder, or the same settings to go on."
        )
