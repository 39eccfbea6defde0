"""What counts as a number: flags are none."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any


def is_number(value: Any) -> bool:
    """A number that is no flag."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """A whole number that is no flag."""
    return isinstance(value, Integral) and not isinstance(value, bool)
