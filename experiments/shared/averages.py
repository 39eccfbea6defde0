"""One way to average: over seeds of a fold first, then over folds by their rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

Line = Mapping[str, Any]
T = TypeVar("T")


def grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> dict[Any, list[T]]:
    """Items by key, in the order in which the keys first come."""
    found: dict[Any, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def means(
    lines: Sequence[Line], names: Iterable[str], weights: Sequence[float] | None = None
) -> dict[str, float | None]:
    """Weighted mean of every column; None where a line has none."""
    found: dict[str, float | None] = {}
    for name in names:
        values = [line[name] for line in lines]
        found[name] = None if None in values else float(np.average(values, weights=weights))
    return found


def over_seeds(lines: Sequence[Line], names: Iterable[str], spread: str = "mape") -> dict[str, Any]:
    """Means over runs that differ in their seed, and the standard deviation of one column."""
    if not lines:
        return {}
    deviation = float(np.std([line[spread] for line in lines], ddof=1)) if len(lines) > 1 else None
    found = {"rows": lines[0]["rows"], "seeds": len(lines), **means(lines, names)}
    return {**found, f"{spread}_sd": deviation}


def over_folds(lines: Sequence[Line], names: Iterable[str]) -> dict[str, Any]:
    """Means weighted by rows; medians and percentiles are such means too."""
    weights = [line["rows"] for line in lines]
    return {"rows": int(sum(weights)), **means(lines, names, weights)}
