"""The loss of a measured training step, for models that return none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from prenet_gnn.measuring.errors import MeasureError

if TYPE_CHECKING:
    import torch


def tensors_in(value: Any) -> list[torch.Tensor]:
    """All tensors in nested lists, tuples, mappings and output objects."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [t for item in value.values() for t in tensors_in(item)]
    if isinstance(value, list | tuple):
        return [t for item in value for t in tensors_in(item)]
    if hasattr(value, "__dict__") and not callable(value):
        return [t for item in vars(value).values() for t in tensors_in(item)]
    return []


class Loss:
    """Turns a model's output into a scalar; targets are made once, as a loader would have.

    A loss that the model computes itself is taken. Otherwise every output that depends on a
    weight adds a term, as the tracer's own loss does: cross-entropy where it looks like class
    scores (`(N, C)` or `(N, C, *spatial)`), else the mean.
    """

    def __init__(self) -> None:
        """Starts without targets; the first output says their shape."""
        self._targets: dict[tuple[int, ...], torch.Tensor] = {}

    def __call__(self, output: Any) -> torch.Tensor:
        """Scalar loss of an output."""
        own = getattr(output, "loss", None)
        if own is not None:
            return own  # type: ignore[no-any-return]
        found = [t for t in tensors_in(output) if t.is_floating_point() and t.requires_grad]
        if not found:
            raise MeasureError("the model's output does not depend on a trainable weight.")
        scalars = [t for t in found if t.dim() == 0]
        terms = scalars or [self._term(t) for t in found]
        return sum(terms[1:], terms[0])

    def _term(self, scores: torch.Tensor) -> torch.Tensor:
        import torch

        shape = tuple(scores.shape)
        if len(shape) not in (2, 4, 5) or shape[1] < 2:
            return scores.mean()
        if shape not in self._targets:
            size = (shape[0], *shape[2:])
            self._targets[shape] = torch.randint(0, shape[1], size, device=scores.device)
        return torch.nn.functional.cross_entropy(scores, self._targets[shape])
