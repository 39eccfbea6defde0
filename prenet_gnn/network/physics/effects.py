"""What an effect may change of the plain roofline, and the register of all effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor, nn

from prenet_gnn.network.latents import RowLatents
from prenet_gnn.network.physics.calls import Calls


class Effect(nn.Module):
    """One physical effect; a subclass overrides what it changes and leaves the rest as it is."""

    def rate_class(self, calls: Calls, found: Tensor) -> Tensor:
        """Which rate the arithmetic of every call runs at, `(M,)`; see `arithmetic.CLASSES`."""
        return found

    def inverse_rate(self, calls: Calls, rate_class: Tensor, found: Tensor) -> Tensor:
        """Seconds per FLOP of every call, forward and backward `(M, 2)`."""
        return found

    def arithmetic(self, calls: Calls, rate_class: Tensor, found: Tensor) -> Tensor:
        """Seconds of arithmetic of every call, `(M, 2)`."""
        return found

    def per_byte(self, calls: Calls, found: Tensor) -> Tensor:
        """Seconds per byte of every row's memory before corrections, `(G,)`."""
        return found

    def traffic(self, calls: Calls, found: Tensor) -> Tensor:
        """Seconds of memory traffic of every call, `(M, 2)`."""
        return found

    def launches(self, calls: Calls, found: Tensor) -> Tensor:
        """Seconds of starting and ending kernels of every call, `(M, 2)`."""
        return found

    def extra(self, calls: Calls, latents: RowLatents) -> Tensor | None:
        """Forward seconds beside all others that the network does not correct, `(M,)`; or none."""
        return None


# In the order in which they act.
EFFECTS: dict[str, type[Effect]] = {}
_Kind = TypeVar("_Kind", bound=type[Effect])


def register_effect(name: str) -> Callable[[_Kind], _Kind]:
    """Adds an effect under a name, by which a configuration can leave it out."""

    def add(kind: _Kind) -> _Kind:
        if name in EFFECTS:
            raise ValueError(f"there is an effect '{name}' already")
        EFFECTS[name] = kind
        return kind

    return add
