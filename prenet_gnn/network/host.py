"""Seconds of the host, which dispatches operators while the device works."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prenet_gnn.encoding.fields import DEVICE, PHASES, RUN, STEP
from prenet_gnn.network.latents import FRAMEWORK_LATENTS, RowLatents
from prenet_gnn.network.physics.calls import Calls
from tracing.costs.vocab import KINDS

# Starting points; training moves them. PyTorch dispatches an operator in about ten microseconds, as
# seen in launch-bound rows of the data, and an iteration has a few beside its operators.
CALL_S, FIXED_S = 8e-6, 3e-5
# A view's share of a dispatched operator.
VIEW_CALLS = 0.3
# What beside operators in the forward pass has a cost of its own.
COSTS = ("views", "backward", "optimizer", "zero_grad", "fixed")


@dataclass(frozen=True, slots=True)
class HostConfig:
    """Which host term there is.

    Attributes:
        kind: A key of `HOSTS`: `dispatch`, or `none` for a host that is never in the way.
    """

    kind: str = "dispatch"


class HostDispatch(nn.Module):
    """The time that issuing all operators takes.

    Shapes:
        `Calls`, `RowLatents`, factors of dispatch `(M, 2)` -> seconds `(G,)`
    """

    def __init__(self) -> None:
        """Starts at `CALL_S` for every operator."""
        super().__init__()
        self.cost_log = nn.Parameter(torch.zeros(len(COSTS)))
        self.kind_log = nn.Parameter(torch.zeros(2, len(KINDS)))
        self.run = nn.Linear(RUN.width, 2, bias=False)
        nn.init.zeros_(self.run.weight)
        self.year = nn.Parameter(torch.zeros(()))

    def forward(self, calls: Calls, latents: RowLatents, factors: Tensor) -> Tensor:
        """Seconds of the host."""
        batch = calls.batch
        dispatched = calls.dispatched * self.kind_log[:, calls.kind].t().exp() * factors
        operators = calls.sum_per_row(dispatched)
        framework = FRAMEWORK_LATENTS.span(latents.framework, "host_forward", "host_backward")
        # no source names its machines; newer devices sit in newer ones
        age = self.year * DEVICE.of(batch.device, "year")[:, None] / 8.0
        speed = (self.run(batch.run) + (latents.host + framework) + age).exp() * CALL_S
        cost = dict(zip(COSTS, self.cost_log.exp(), strict=True))
        views = VIEW_CALLS * cost["views"] * batch.views
        seconds = {
            "forward": speed[:, 0] * (operators[:, 0] + views),
            "backward": speed[:, 1] * operators[:, 1] * cost["backward"],
        }
        for name in ("optimizer", "zero_grad"):
            kernels = STEP.of(batch.step, f"{name}_kernels")
            seconds[name] = speed[:, 0] * kernels * cost[name]
        total: Tensor = FIXED_S * cost["fixed"].expand(batch.rows)
        for name, part in seconds.items():
            total = total + PHASES.of(batch.phases, name) * part
        return total


class NoHost(nn.Module):
    """A host that is never in the way: the ablation without the host's bound."""

    def forward(self, calls: Calls, latents: RowLatents, factors: Tensor) -> Tensor:
        """No seconds at all, `(G,)`."""
        return torch.zeros(calls.batch.rows)


HOSTS: dict[str, type[nn.Module]] = {"dispatch": HostDispatch, "none": NoHost}
