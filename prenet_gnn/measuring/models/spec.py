"""Specs such as `layer:conv?in=64&out=128&kernel=3`, and the families that register for them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from prenet_gnn.measuring.devices import is_out_of_memory
from prenet_gnn.measuring.errors import MeasureError

if TYPE_CHECKING:
    import torch

Value = int | str


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes that are not part of a spec, and where tensors are made."""

    batch_size: int
    image_size: int | None
    seq_len: int | None
    device: str

    @property
    def image(self) -> int:
        """Height and width; 56 where not given."""
        return self.image_size or 56

    @property
    def seq(self) -> int:
        """Tokens or steps; 128 where not given."""
        return self.seq_len or 128


Options = Mapping[str, Any]
Builder = Callable[[Options, Shape], "tuple[torch.nn.Module, tuple[Any, ...]]"]


@dataclass(frozen=True, slots=True)
class Family:
    """A builder and the options it knows, with their defaults."""

    build: Builder
    defaults: Mapping[str, Value]


FAMILIES: dict[str, Family] = {}


def register(name: str, **defaults: Value) -> Callable[[Builder], Builder]:
    """Adds a family, `layer:NAME` or `net:NAME`; option names and defaults are the keywords."""

    def add(build: Builder) -> Builder:
        if name in FAMILIES:
            raise ValueError(f"'{name}' is already registered")
        FAMILIES[name] = Family(build, defaults)
        return build

    return add


def is_layer(spec: str) -> bool:
    """The spec names a single layer, which runs without a loss."""
    return spec.startswith("layer:")


def is_own(spec: str) -> bool:
    """The spec is built here and not by the model zoo."""
    return spec.startswith(("layer:", "net:"))


def format_spec(name: str, options: Mapping[str, Value]) -> str:
    """Spec with its options in a fixed order, so that equal points have equal names."""
    query = "&".join(f"{key}={options[key]}" for key in sorted(options))
    return f"{name}?{query}" if query else name


def unknown(what: str, name: str, allowed: list[str]) -> MeasureError:
    """The error for a name that is not known, with the nearest that is."""
    near = difflib.get_close_matches(name, allowed, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return MeasureError(f"no {what} '{name}'.{hint} Known: {', '.join(allowed)}.")


def parse_spec(spec: str) -> tuple[str, dict[str, Value]]:
    """Splits a spec into its family and its options, with defaults filled in."""
    name, _, query = spec.partition("?")
    if name not in FAMILIES:
        raise unknown("layer", name, sorted(FAMILIES))
    options = dict(FAMILIES[name].defaults)
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key not in options:
            raise unknown(f"option of {name}", key, sorted(options))
        options[key] = _like(options[key], text, f"{name}: {key}")
    return name, options


def _like(default: Value, text: str, where: str) -> Value:
    if isinstance(default, str):
        return text
    try:
        number = int(text)
    except ValueError:
        raise MeasureError(f"{where} must be a whole number, not '{text}'.") from None
    if number < 0:
        raise MeasureError(f"{where} must not be negative.")
    return number


def build_own(spec: str, shape: Shape) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """Module and inputs of a `layer:` or `net:` spec, made on the device of `shape`."""
    import torch

    name, options = parse_spec(spec)
    try:
        with torch.device(shape.device):
            return FAMILIES[name].build(options, shape)
    except (RuntimeError, ValueError, AssertionError) as error:
        if is_out_of_memory(error):
            raise
        raise MeasureError(f"{spec} cannot be built: {error}") from None
