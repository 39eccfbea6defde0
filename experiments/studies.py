"""What all studies share: finished runs in a CSV file, facts about code and machine, bar plots."""

from __future__ import annotations

import csv
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from experiments.provenance import data_hashes, git_commit

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("torch", "torch-geometric", "numpy", "scikit-learn", "xgboost", "optuna")
DIGITS = 6


def facts(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """What a result was made with."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    words = list(sys.argv[1:] if arguments is None else arguments)
    return {
        "arguments": words,
        "commit": git_commit(),
        "data_sha256": data_hashes(),
        "versions": versions,
        "machine": {"system": platform.system(), "cores": os.cpu_count()},
    }


class Ledger:
    """Finished runs, one line each, so that a study that was stopped goes on where it was.

    Lines are flushed one by one; a line that a crash cut off is left out when the file is read.
    """

    def __init__(self, path: Path, keys: Sequence[str], columns: Sequence[str]) -> None:
        """Reads what is there; `keys` are the columns that name a run."""
        self.path, self.keys, self.columns = path, tuple(keys), (*keys, *columns)
        self.rows: list[dict[str, str]] = []
        if path.exists():
            with path.open(newline="", encoding="utf-8") as file:
                self.rows = [r for r in csv.DictReader(file) if _is_whole(r, self.columns)]
        self._rewrite()

    def has(self, **key: object) -> bool:
        """Whether a run is finished."""
        return any(all(row[k] == str(v) for k, v in key.items()) for row in self.rows)

    def add(self, row: Mapping[str, object]) -> None:
        """Adds a finished run."""
        line = {name: _text(row.get(name, "")) for name in self.columns}
        self.rows.append(line)
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self.columns, lineterminator="\n").writerow(line)

    def _rewrite(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_name(f".{self.path.name}.tmp")
        with draft.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self.columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
        draft.replace(self.path)


def _is_whole(row: Mapping[str, Any], columns: Sequence[str]) -> bool:
    return set(row) == set(columns) and None not in row.values()


def _text(value: object) -> str:
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else str(value)


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Writes a result file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def bars(
    path: Path,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float]],
    *,
    title: str,
    unit: str,
    spreads: Mapping[str, Sequence[float]] | None = None,
    logarithmic: bool = False,
) -> None:
    """Horizontal bars, one colour per series, as a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    height = 0.8 / max(len(series), 1)
    size = (8, 1.2 + 0.22 * len(groups) * max(len(series), 1))
    figure, axes = pyplot.subplots(figsize=size, layout="constrained")
    for number, (name, values) in enumerate(series.items()):
        places = [i + (number - (len(series) - 1) / 2) * height for i in range(len(groups))]
        axes.barh(places, values, height, label=name, xerr=(spreads or {}).get(name), capsize=2)
    axes.set_yticks(range(len(groups)), groups)
    axes.invert_yaxis()
    axes.set_title(title)
    axes.set_xlabel(unit)
    if logarithmic:
        axes.set_xscale("log")
    if len(series) > 1:
        axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90, metadata={"Software": ""})
    pyplot.close(figure)
