"""Which page shows the table of which study; each study makes its own from its result."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

from experiments.shared.markdown import DOCS, fill_table, has_table
from experiments.shared.results import read_result

# Result file -> the module whose `table` shows it, and the page.
STUDIES = {
    "ensemble": ("ensemble", "accuracy.md"),
    "published": ("published", "accuracy.md"),
    "outside": ("outside", "accuracy.md"),
    "breakdown": ("breakdown", "accuracy.md"),
    "memory": ("memory_verdict", "accuracy.md"),
    "ablations": ("ablations", "experiments.md"),
    "tuning": ("tuning", "experiments.md"),
    "compare-fold1": ("compare", "experiments.md"),
    "layers": ("prenet_layers", "experiments.md"),
    "cpu_error": ("cpu_error", "checking.md"),
    "calibration-fold1": ("calibration_curve", "checking.md"),
}


def study_tables(folder: Path | None = None) -> Iterator[tuple[str, Path, str]]:
    """Name, page and text of the tables whose result files exist."""
    for name, (module, page) in STUDIES.items():
        result = read_result(name, folder)
        if result:
            study = importlib.import_module(f"experiments.{module}")
            yield name, DOCS / page, study.table(result)


def put(name: str, page: Path, text: str) -> None:
    """Puts a table into its page; says where the page has no place for it."""
    if text and has_table(name, page):
        fill_table(name, text, page)
    elif text:
        print(f"table '{name}' is not written: {page.name} has no place for it")
