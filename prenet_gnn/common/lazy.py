"""Public names of a package that are loaded on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

Loader = tuple[Callable[[str], Any], Callable[[], list[str]]]


def lazy(namespace: dict[str, Any], homes: Mapping[str, str]) -> Loader:
    """Gives a package its `__getattr__` and `__dir__`.

    Args:
        namespace: The package's `globals()`.
        homes: The module that defines a name, as a path under `prenet_gnn`.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{namespace['__name__']}' has no attribute '{name}'")
        value = getattr(importlib.import_module(f"prenet_gnn.{homes[name]}"), name)
        namespace[name] = value
        return value

    def names() -> list[str]:
        return sorted(namespace["__all__"])

    return load, names
