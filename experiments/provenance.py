"""What a result was made with, and the file that keeps it."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("torch", "torch-geometric", "timm", "torchvision", "transformers")
TABLES = (
    "measurements.csv.gz",
    "measurements_extra.csv.gz",
    "operators.csv.gz",
    "operators_extra.csv.gz",
    "memory.csv.gz",
)


def provenance(command: str, **settings: Any) -> dict[str, Any]:
    """Command, settings, commit, versions and the tables of measurements."""
    return {
        "command": command,
        **settings,
        "commit": git_commit(),
        "data_sha256": data_hashes(),
        "versions": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
    }


def git_commit() -> str:
    """The commit of the code, with a mark when files differ from it; result files are no code."""
    here = Path(__file__).resolve().parent
    git = functools.partial(subprocess.run, capture_output=True, text=True, check=True, cwd=here)
    others = ["--", ":/", f":(exclude,top){here.name}/{RESULTS.name}"]
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


def write_result(name: str, values: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """Writes a result as JSON; NaN is refused, since JSON does not know it."""
    path = folder / f"{name}.json"
    text = json.dumps(values, indent=1, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
    return path


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
