"""What a result was made with, and the file that keeps it."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from experiments.accuracy import RESULTS, git_commit

PACKAGES = ("torch", "torch-geometric", "timm", "torchvision", "transformers")


def provenance(command: str, **settings: Any) -> dict[str, Any]:
    """Command, settings, commit and versions."""
    return {
        "command": command,
        **settings,
        "commit": git_commit(),
        "versions": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
    }


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
