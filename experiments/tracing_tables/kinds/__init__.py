"""Small models of every kind that tracing has to cope with: layers, inputs, wrappers, regions."""

from __future__ import annotations

from collections.abc import Callable

from experiments.tracing_tables.kinds.layers import LAYERS, Built
from experiments.tracing_tables.kinds.models import MODELS, geometric
from experiments.tracing_tables.kinds.regions import INPUTS, REGIONS


def all_kinds() -> dict[str, Callable[[], Built]]:
    """Every model by name; the part before the colon is its group."""
    groups = {
        "input": INPUTS,
        "region": REGIONS,
        "layer": LAYERS,
        "model": MODELS,
        "geometric": geometric(),
    }
    return {
        f"{group}:{name}": build
        for group, models in groups.items()
        for name, build in models.items()
    }
