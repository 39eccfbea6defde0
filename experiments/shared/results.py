"""Result files: where they lie, what they were made with, and how they are written."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from prenet_gnn.common.files import write_whole

EXPERIMENTS = Path(__file__).resolve().parents[1]
ROOT = EXPERIMENTS.parent
RESULTS = EXPERIMENTS / "results"
# Quick runs are smoke tests: their files stay out of the tracked folder.
QUICK = ROOT / "runs" / "quick"
PACKAGES = (
    "torch", "torch-geometric", "numpy", "scikit-learn", "xgboost", "optuna", "timm", "torchvision",
    "transformers",
)  # fmt: skip
TABLES = (
    "measurements.csv.gz",
    "measurements_extra.csv.gz",
    "operators.csv.gz",
    "operators_extra.csv.gz",
    "memory.csv.gz",
    "measurements_lambda.csv.gz",
)
Result = dict[str, Any]


def folder_of(quick: bool) -> Path:
    """Where a run leaves its files."""
    return QUICK if quick else RESULTS


def provenance(
    command: str = "", packages: Sequence[str] = PACKAGES, **settings: Any
) -> dict[str, Any]:
    """Command (by default the one that runs), settings, commit, versions, data and machine."""
    return {
        "command": command or running_command(),
        "commit": git_commit(),
        "data_sha256": data_hashes(),
        "versions": versions(packages),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        **settings,
    }


def running_command() -> str:
    """The command line of this process, as one would type it in the repository."""
    place = Path(sys.argv[0]).resolve()
    if not place.is_relative_to(ROOT):
        return shlex.join(sys.argv)
    name = ".".join(place.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
    return shlex.join(["python", "-m", name, *sys.argv[1:]])


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of packages; those that are not installed are left out."""
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def git_commit(root: Path = ROOT) -> str:
    """The commit of the code, with a mark when files differ from it; result files are no code."""
    git = functools.partial(subprocess.run, capture_output=True, text=True, check=True, cwd=root)
    results = RESULTS.relative_to(ROOT).as_posix()
    others = ["--", ":/", f":(exclude,top){results}"]
    try:
        commit = git(["git", "rev-parse", "--short", "HEAD"]).stdout.strip()
        changed = git(["git", "status", "--porcelain", "--untracked-files=no", *others]).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}-dirty" if changed.strip() else commit


@functools.cache
def data_hashes() -> dict[str, str]:
    """SHA-256 of every table of measurements; empty where there is no data."""
    from prenet_gnn.data.tables import find_data_dir
    from prenet_gnn.errors import DataError

    try:
        folder = find_data_dir(None)
    except DataError:
        return {}
    found = {}
    for name in TABLES:
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def write_result(name: str, values: Mapping[str, Any], folder: Path | None = None) -> Path:
    """Writes `NAME.json`; NaN is refused, since JSON does not know it."""
    path = (folder or RESULTS) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(values, indent=1, allow_nan=False) + "\n")
    return path


def read_result(name: str, folder: Path | None = None) -> Result:
    """What `write_result` wrote; empty where the study has not run."""
    path = (folder or RESULTS) / f"{name}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with None for what is not a number."""
    return {name: None if value != value else value for name, value in values.items()}
