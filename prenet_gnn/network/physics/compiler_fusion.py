"""What a compiler saves by fusing neighbouring calls into one kernel."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from prenet_gnn.encoding.fields import RUN
from prenet_gnn.network.physics.calls import Calls
from prenet_gnn.network.physics.effects import Effect, register_effect

# Starting share of the traffic between fused calls, and of their launches, that compiling saves.
FUSE_LOGIT = 1.0


@register_effect("compiler_fusion")
class CompilerFusion(Effect):
    """Saves traffic between fused calls (`encoding.fusion`), and their launches."""

    def __init__(self) -> None:
        """Starts at a share for traffic and one for launches."""
        super().__init__()
        self.logit = nn.Parameter(torch.full((2,), FUSE_LOGIT))

    def _left(self, calls: Calls, place: int, column: str) -> Tensor:
        """What is left when a share is saved: `(M, 1)`."""
        compiled = calls.of_row(RUN.of(calls.batch.run, "compiled"))[:, None]
        share = torch.sigmoid(self.logit)[place]
        return 1.0 - compiled * share * calls.spread(calls.number(column))[:, None]

    def traffic(self, calls: Calls, found: Tensor) -> Tensor:
        """Seconds of memory traffic, `(M, 2)`."""
        return found * self._left(calls, 0, "fused_share")

    def launches(self, calls: Calls, found: Tensor) -> Tensor:
        """Seconds of launches, `(M, 2)`."""
        return found * self._left(calls, 1, "fused_reads")
