"""Batch dimensions that `torch.vmap` hides from the operators inside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracing.graph.specs import Operand, TensorSpec


class Hidden:
    """Hidden dimensions by call: the size of every level of vmap it runs in."""

    def __init__(self) -> None:
        """Starts outside of any vmap."""
        self._sizes: dict[int, dict[int, int]] = {}

    def copy(self) -> Hidden:
        """One that learns on its own from here on."""
        twin = Hidden()
        twin._sizes = dict(self._sizes)
        return twin

    def restore(
        self,
        index: int,
        target: str,
        tensors: Sequence[Operand],
        attrs: dict[str, Any],
        outs: list[TensorSpec],
    ) -> list[TensorSpec]:
        """The outputs of a call with the hidden dimensions in front."""
        levels: dict[int, int] = {}
        for source, _ in tensors:
            levels |= self._sizes.get(source.node, {}) if source.kind == "node" else {}
        if "_add_batch_dim" in target:
            dim, level = int(attrs["arg1"]), int(attrs["arg2"])
            levels[level] = tensors[0][1].shape[len(levels) :][dim]
        elif "_remove_batch_dim" in target:
            levels.pop(int(attrs["arg1"]), None)
        if not levels:
            return outs
        self._sizes[index] = levels
        front = tuple(levels.values())
        return [TensorSpec((*front, *spec.shape), spec.dtype) for spec in outs]
