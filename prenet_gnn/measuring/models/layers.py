"""Single layers, for layer sweeps.

Families and ranges follow PreNeT (Pourali, Boukani, Khazaei, ICPE 2025); grouped convolutions and
batch norm are added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prenet_gnn.measuring.errors import MeasureError
from prenet_gnn.measuring.models.spec import Options, Shape, register, unknown

if TYPE_CHECKING:
    import torch

ACTIVATIONS = ("none", "relu", "tanh", "sigmoid", "gelu")


def _with_activation(layer: torch.nn.Module, name: str) -> torch.nn.Module:
    from torch import nn

    if name not in ACTIVATIONS:
        raise unknown("activation", name, list(ACTIVATIONS))
    modules = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "gelu": nn.GELU}
    return layer if name == "none" else nn.Sequential(layer, modules[name]())


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
        raise unknown("padding", options["padding"], ["same", "valid"])
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
        raise unknown("recurrent kind", options["kind"], sorted(kinds))
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
