"""Fixtures that several test modules share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the measured data; tests that need it are skipped where it is not at hand."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("PRENET_DATA") or beside)
    if not (folder / "measurements.csv.gz").is_file():
        pytest.skip("measured data not found: set PRENET_DATA")
    return folder
