"""Single layers by a spec such as `layer:conv?in=64&out=128&kernel=3`, for layer sweeps.

Families and ranges follow PreNeT (Pourali, Boukani, Khazaei, ICPE 2025); grouped convolutions and
batch norm are added. `net:` specs (small whole models) live in `nets.py`.
"""

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
ACTIVATIONS = ("none", "relu", "tanh", "sigmoid", "gelu")


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


def _unknown(what: str, name: str, allowed: list[str]) -> MeasureError:
    near = difflib.get_close_matches(name, allowed, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return MeasureError(f"no {what} '{name}'.{hint} Known: {', '.join(allowed)}.")


def parse_spec(spec: str) -> tuple[str, dict[str, Value]]:
    """Splits a spec into its family and its options, with defaults filled in."""
    from prenet_gnn.measuring import nets  # noqa: F401  registers the net: families

    name, _, query = spec.partition("?")
    if name not in FAMILIES:
        raise _unknown("layer", name, sorted(FAMILIES))
    options = dict(FAMILIES[name].defaults)
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key not in options:
            raise _unknown(f"option of {name}", key, sorted(options))
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


def activation(name: str) -> torch.nn.Module:
    """Activation module by its short name."""
    from torch import nn

    if name not in ACTIVATIONS:
        raise _unknown("activation", name, list(ACTIVATIONS))
    modules = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "gelu": nn.GELU}
    chosen: nn.Module = modules.get(name, nn.Identity)()
    return chosen


def _with_activation(layer: torch.nn.Module, name: str) -> torch.nn.Module:
    from torch import nn

    return layer if name == "none" else nn.Sequential(layer, activation(name))


@register("layer:dense", act="none", out=512, **{"in": 512})
def _dense(options: Options, shape: Shape) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    import torch

    layer = torch.nn.Linear(options["in"], options["out"])
    size = (shape.batch_size, options["in"])
    if shape.seq_len:
        size = (shape.batch_size, shape.seq_len, options["in"])  # type: ignore[assignment]
    return _with_activation(layer, options["act"]), (torch.randn(size),)


@register(
    "layer:conv",
    act="none",
    bias=1,
    groups=1,
    kernel=3,
    out=64,
    padding="same",
    stride=1,
    **{"in": 64},
)
def _conv(options: Options, shape: Shape) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    import torch

    if options["padding"] not in ("same", "valid"):
        raise _unknown("padding", options["padding"], ["same", "valid"])
    layer = torch.nn.Conv2d(
        options["in"],
        options["out"],
        options["kernel"],
        stride=options["stride"],
        padding=options["kernel"] // 2 if options["padding"] == "same" else 0,
        groups=options["groups"],
        bias=bool(options["bias"]),
    )
    inputs = torch.randn(shape.batch_size, options["in"], shape.image, shape.image)
    return _with_activation(layer, options["act"]), (inputs,)


@register("layer:attention", dim=512, heads=8)
def _attention(options: Options, shape: Shape) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    import torch

    dim, heads = options["dim"], options["heads"]
    if heads < 1 or dim % heads:
        raise MeasureError(f"layer:attention: dim {dim} must be a multiple of heads {heads}.")

    class SelfAttention(torch.nn.Module):
        """Multi-head self-attention over one projection, as transformers run it."""

        def __init__(self) -> None:
            super().__init__()
            self.project = torch.nn.Linear(dim, 3 * dim)
            self.out = torch.nn.Linear(dim, dim)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """`(B, S, D)` -> `(B, S, D)`."""
            batch, seq, _ = x.shape
            parts = self.project(x).view(batch, seq, 3, heads, dim // heads)
            query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
            mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value)
            output: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(batch, seq, dim))
            return output

    return SelfAttention(), (torch.randn(shape.batch_size, shape.seq, dim),)


@register("layer:embedding", dim=512, vocab=32000)
def _embedding(options: Options, shape: Shape) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    import torch

    layer = torch.nn.Embedding(options["vocab"], options["dim"])
    return layer, (torch.randint(0, options["vocab"], (shape.batch_size, shape.seq)),)


@register("layer:layernorm", dim=512)
def _layernorm(options: Options, shape: Shape) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    import torch

    inputs = torch.randn(shape.batch_size, shape.seq, options["dim"])
    return torch.nn.LayerNorm(options["dim"]), (inputs,)


@register("layer:batchnorm", channels=64)
def _batchnorm(options: Options, shape: Shape) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    import torch

    inputs = torch.randn(shape.batch_size, options["channels"], shape.image, shape.image)
    return torch.nn.BatchNorm2d(options["channels"]), (inputs,)


@register("layer:recurrent", bidirectional=0, hidden=128, kind="lstm", layers=1, **{"in": 128})
def _recurrent(options: Options, shape: Shape) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    import torch

    kinds = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}
    if options["kind"] not in kinds:
        raise _unknown("recurrent kind", options["kind"], sorted(kinds))
    layer = kinds[options["kind"]](
        options["in"],
        options["hidden"],
        num_layers=options["layers"],
        bidirectional=bool(options["bidirectional"]),
        batch_first=True,
    )
    return layer, (torch.randn(shape.batch_size, shape.seq, options["in"]),)


@register("layer:positional", dim=512)
def _positional(options: Options, shape: Shape) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    import torch

    class Positional(torch.nn.Module):
        """Adds a fixed sine table (Vaswani et al. 2017, section 3.5)."""

        table: torch.Tensor

        def __init__(self, dim: int, length: int) -> None:
            super().__init__()
            position = torch.arange(length, dtype=torch.float32)[:, None]
            half = torch.arange(0, dim, 2, dtype=torch.float32)
            angle = position * torch.exp(half * (-9.210340371976184 / dim))  # log(10000)
            table = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :dim]
            self.register_buffer("table", table)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """`(B, S, D)` -> `(B, S, D)`."""
            return x + self.table[: x.shape[1]]

    inputs = torch.randn(shape.batch_size, shape.seq, options["dim"])
    return Positional(options["dim"], shape.seq), (inputs,)
