"""Tables that show what tracing covers and how exact it is."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.tracing_tables.common import Study

STUDIES = ("coverage", "flops", "golden", "saved", "batch", "speed", "memory", "peers")


def study(name: str) -> Study:
    """The table of that name; loads nothing of the others."""
    found: Study = importlib.import_module(f"experiments.tracing_tables.{name}").STUDY
    return found
