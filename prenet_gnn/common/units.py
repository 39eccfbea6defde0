"""How quantities look to a person: times, bytes and counts with the unit that fits."""

from __future__ import annotations

SECONDS_PER_HOUR = 3600.0
_TIMES = (
    (86400.0, "d"),
    (3600.0, "h"),
    (60.0, "min"),
    (1.0, "s"),
    (1e-3, "ms"),
    (1e-6, "µs"),
)
_COUNTS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def time_text(seconds: float) -> str:
    """Gives a time with three figures and the unit that fits."""
    for size, unit in _TIMES:
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def bytes_text(size_bytes: float) -> str:
    """Gives a size in GiB, or MiB below one GiB."""
    gib = size_bytes / 2**30
    return f"{gib:.1f} GiB" if gib >= 1 else f"{size_bytes / 2**20:.1f} MiB"


def count_text(number: float) -> str:
    """Gives a large number with three figures and a metric prefix."""
    for size, prefix in _COUNTS:
        if abs(number) >= size:
            return f"{number / size:.3g} {prefix}"
    return f"{number:.3g}"


def rate_text(per_second: float) -> str:
    """Gives a throughput in whole numbers, or with three figures below a hundred."""
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"
