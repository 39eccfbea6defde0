"""Random models that tests draw with hypothesis, small enough to run on any CPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import assume
from hypothesis import strategies as st
from random_blocks import COMPLEX, FAMILIES, Apply, Block, Draw, Shape, one_of, width
from torch import nn

DTYPES = ("float32", "float32", "float64", "bfloat16", "float16", "float32", "complex64")
STARTS = {
    "convolutional": ("image", "image", "sequence"),
    "recurrent": ("sequence", "tokens"),
    "attention": ("sequence", "tokens", "image"),
    "mixed": ("image", "sequence", "tokens", "row"),
}
WORDS = 11


@dataclass(frozen=True)
class Case:
    """A model with inputs that it takes.

    Attributes:
        model: On the CPU, in training or evaluation mode.
        args: Positional inputs.
        kwargs: Named inputs.
        family: `convolutional`, `recurrent`, `attention` or `mixed`.
        dtype: Number format of weights and inputs.
    """

    model: nn.Module
    args: tuple[torch.Tensor, ...]
    kwargs: dict[str, torch.Tensor] = field(default_factory=dict)
    family: str = ""
    dtype: str = "float32"

    def __repr__(self) -> str:
        """What a failing test shows."""
        shapes = [tuple(x.shape) for x in (*self.args, *self.kwargs.values())]
        frozen = [name for name, p in self.model.named_parameters() if not p.requires_grad]
        return (
            f"{self.family} {self.dtype} inputs {shapes} grad "
            f"{[x.requires_grad for x in self.args]} training {self.model.training} "
            f"frozen {frozen} of {self.model!r}"
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def run(self) -> Any:
        """Calls the model."""
        return self.model(*self.args, **self.kwargs)

    def resized(self, batch: int) -> Case:
        """The same model with inputs of another batch size."""
        args = tuple(_batch(x, batch) for x in self.args)
        kwargs = {name: _batch(x, batch) for name, x in self.kwargs.items()}
        return Case(self.model, args, kwargs, self.family, self.dtype)


def _batch(x: torch.Tensor, size: int) -> torch.Tensor:
    return torch.zeros((size, *x.shape[1:]), dtype=x.dtype).requires_grad_(x.requires_grad)


class Net(nn.Module):
    """Blocks one after the other, a second input added on the way, one or several results."""

    def __init__(self, blocks: list[nn.Module], results: str) -> None:
        """Takes the blocks; a first embedding may lend its weight to the last layer."""
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.side: nn.Module | None = None
        self.place, self.results = 0, results

    def extra_repr(self) -> str:
        """Where the second input enters and what leaves."""
        return f"side input before block {self.place}, results: {self.results}"

    def forward(self, x: torch.Tensor, side: torch.Tensor | None = None) -> Any:
        """Runs the blocks."""
        for position, block in enumerate(self.blocks):
            if side is not None and self.side is not None and position == self.place:
                more = self.side(side)
                x = x + (more[:, :, None, None] if x.dim() == 4 else
                         more[:, None] if x.dim() == 3 else more)  # fmt: skip
            x = block(x)
        if self.results == "tuple":
            return x, x.flatten(1).mean(1)
        if self.results == "dict":
            return {"out": x, "size": x.shape[0]}
        return x


def _first(draw: Draw, start: str, batch: int) -> tuple[torch.Tensor, list[nn.Module]]:
    """The first input, and the embedding where it is made of words."""
    length = draw(one_of(5, 3, 8, 1))
    if start == "tokens":
        return torch.randint(WORDS, (batch, length)), [nn.Embedding(WORDS, draw(one_of(8, 6, 4)))]
    if start == "image":
        size = (draw(one_of(3, 1, 4)), draw(one_of(9, 7, 12)), draw(one_of(9, 5, 8)))
        return torch.randn(batch, *size), []
    if start == "sequence":
        return torch.randn(batch, length, draw(one_of(8, 6, 5))), []
    return torch.randn(batch, draw(width())), []


def _flatten(draw: Draw, shape: Shape) -> nn.Module:
    """From images to sequences or rows, from sequences to rows."""
    if len(shape) == 3 and draw(st.booleans()):
        return Apply(lambda x: x.flatten(2).transpose(1, 2), "x.flatten(2).transpose(1, 2)")
    if len(shape) == 3:
        return draw(one_of(nn.Flatten(), Apply(lambda x: x.mean((2, 3)), "x.mean((2, 3))")))
    return draw(
        one_of(
            Apply(lambda x: x.mean(1), "x.mean(1)"), Apply(lambda x: x[:, -1], "x[:, -1]"),
            Apply(lambda x: x.max(1).values, "x.max(1).values"),
        )
    )  # fmt: skip


def _freeze(draw: Draw, model: nn.Module) -> None:
    """Takes gradients from some blocks or single parameters."""
    how = draw(one_of("nothing", "nothing", "a module", "parameters"))
    modules = [m for m in model.modules() if list(m.parameters(recurse=False))]
    if how == "a module" and modules:
        draw(st.sampled_from(modules)).requires_grad_(False)
    elif how == "parameters":
        for parameter in model.parameters():
            parameter.requires_grad_(draw(st.booleans()))


@st.composite
def models(draw: Draw, families: tuple[str, ...] = tuple(FAMILIES)) -> Case:
    """Draws a model of one of the families with its inputs.

    What PyTorch itself refuses (a gradient that an in-place call destroyed, a number format that a
    kernel does not know) is not drawn.
    """
    family, dtype = draw(one_of(*families)), draw(one_of(*DTYPES))
    batch = draw(one_of(2, 3, 5))
    start = draw(one_of(*STARTS[family]))
    kinds: dict[int, tuple[Block, ...]] = FAMILIES[family]
    if dtype == "complex64":
        start, kinds = draw(one_of("row", "sequence")), COMPLEX
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x, blocks = _first(draw, start, batch)
        blocks = _blocks(draw, x, blocks, kinds)
        model = Net(blocks, draw(one_of("tensor", "tuple", "dict")))
        args, kwargs = _side(draw, model, x)
        kind: torch.dtype = getattr(torch, dtype)
        model = model.to(kind)
        args = tuple(a.to(kind) if a.is_floating_point() else a for a in args)
        kwargs = {name: value.to(kind) for name, value in kwargs.items()}
    if args[0].is_floating_point() and draw(st.booleans()):
        args[0].requires_grad_()
    _freeze(draw, model)
    model.train(draw(one_of(True, True, True, False)))
    case = Case(model, args, kwargs, family, dtype)
    assume(trains(case))
    return case


def _blocks(
    draw: Draw, x: torch.Tensor, blocks: list[nn.Module], kinds: dict[int, tuple[Block, ...]]
) -> list[nn.Module]:
    with torch.no_grad():
        x = nn.Sequential(*blocks)(x)
        for _ in range(draw(st.integers(1, 5))):
            made = draw(st.sampled_from(kinds[x.dim() - 1]))(draw, tuple(x.shape[1:]))
            if made is None:
                continue
            blocks.append(made)
            x = made(x.clone())
            if x.dim() > 2 and draw(one_of(False, False, False, True)):
                blocks.append(_flatten(draw, tuple(x.shape[1:])))
                x = blocks[-1](x)
    return blocks


def _side(
    draw: Draw, model: Net, x: torch.Tensor
) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
    """A second input, positional or named, for some models."""
    how = draw(one_of("none", "none", "positional", "named"))
    if how == "none" or not model.blocks:
        return (x,), {}
    model.place = draw(st.integers(int(not x.is_floating_point()), len(model.blocks) - 1))
    with torch.no_grad():
        y = nn.Sequential(*model.blocks[: model.place])(x.clone())
    channels = y.shape[1] if y.dim() == 4 else y.shape[-1]
    model.side = nn.Linear(3, channels)
    side = torch.randn(x.shape[0], 3)
    return ((x, side), {}) if how == "positional" else ((x,), {"side": side})


def results(case: Case) -> list[torch.Tensor]:
    """Tensors that leave the model and carry a gradient, each once."""
    out = case.run()
    listed = out.values() if isinstance(out, dict) else out if isinstance(out, tuple) else (out,)
    return [t for t in listed if isinstance(t, torch.Tensor) and t.requires_grad]


def total(tensors: list[torch.Tensor]) -> torch.Tensor:
    """A number to differentiate."""
    return torch.stack([torch.view_as_real(t).sum() if t.is_complex() else t.float().sum()
                        for t in tensors]).sum()  # fmt: skip


def trains(case: Case) -> bool:
    """Whether PyTorch runs the model forward and backward."""
    try:
        with torch.random.fork_rng(devices=[]):
            found = results(case)
            if found:
                total(found).backward()
    except RuntimeError:
        return False
    for parameter in (*case.model.parameters(), *case.args):
        parameter.grad = None
    return True
