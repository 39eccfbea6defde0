"""Numbers and shapes as text."""

from __future__ import annotations

from collections.abc import Iterable

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")


def metric(value: float, unit: str = "") -> str:
    """A number with a metric prefix, such as `4.09 G`."""
    power = 0
    while abs(value) >= 1000 and power < len(_PREFIXES) - 1:
        value /= 1000
        power += 1
    digits = f"{value:.3g}" if power else f"{value:.0f}"
    return f"{digits} {_PREFIXES[power]}{unit}".rstrip()


def by(shape: Iterable[int]) -> str:
    """A shape, such as `3x224x224`."""
    return "x".join(map(str, shape))
