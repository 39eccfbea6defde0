"""Checks names, types and ranges of settings that come from a file or a command line."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping
from typing import Any

from prenet_gnn.errors import ConfigError

_WORDS = {
    bool: "true or false", int: "a whole number", float: "a number", str: "a text",
    dict: "a table of settings",
}  # fmt: skip
# Lowest and highest number that is allowed, both included.
Limits = Mapping[str, tuple[float, float]]


def checked(
    table: str,
    data: Any,
    defaults: Mapping[str, Any],
    limits: Limits,
    choices: Mapping[str, Collection[str]],
) -> dict[str, Any]:
    """The settings, each of the type of its default.

    Args:
        table: Name of the table that a message shows, such as `model`.
        data: What was given.
        defaults: All settings with their default values.
        limits: Range of numbers, by setting.
        choices: Texts that are allowed, by setting.

    Raises:
        ConfigError: A name, a type or a value is not allowed.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"'{table}' must be a table of settings, not {data!r}.")
    for name in data:
        if name not in defaults:
            near = difflib.get_close_matches(str(name), defaults, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise ConfigError(
                f"unknown {table} settings: {name}.{hint} Allowed: {', '.join(defaults)}."
            )
    return {
        name: _value(f"{table}.{name}", value, type(defaults[name]), limits.get(name),
                     choices.get(name, ()))
        for name, value in data.items()
    }  # fmt: skip


def _value(
    name: str,
    value: Any,
    kind: type,
    limits: tuple[float, float] | None,
    choices: Collection[str],
) -> Any:
    if kind is tuple:
        return _words(name, value, choices)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ConfigError(f"{name} must be {_WORDS[kind]}, not {value!r}.")
    if choices and value not in choices:
        raise ConfigError(f"{name} '{value}' is not known. Allowed: {', '.join(choices)}.")
    if limits is not None and not _within(value, *limits):
        low, high = limits
        upper = "" if math.isinf(high) else f" and at most {high:g}"
        raise ConfigError(f"{name} must be at least {low:g}{upper}, not {value!r}.")
    return value


def _words(name: str, value: Any, choices: Collection[str]) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(type(word) is str for word in value):
        raise ConfigError(f"{name} must be a list of texts, not {value!r}.")
    for word in value:
        _value(name, word, str, None, choices)
    return tuple(value)


def _within(value: Any, low: float, high: float) -> bool:
    """NaN lies in no range."""
    return bool(low <= value <= high)
