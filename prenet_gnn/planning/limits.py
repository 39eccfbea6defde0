"""Limits of a plan, and which of them binds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from prenet_gnn.common.units import SECONDS_PER_HOUR
from prenet_gnn.errors import PreNetError
from prenet_gnn.planning.option import Option

Key = Callable[[Option], tuple[float, float]]


class PlanError(PreNetError):
    """No option stays within the limits."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Highest cost and longest time of the run; None sets no limit."""

    budget_usd: float | None = None
    deadline_s: float | None = None

    def allow(self, option: Option) -> bool:
        """Whether an option stays within both limits."""
        return self._in_time(option) and self._in_budget(option)

    def excess(self, option: Option) -> float:
        """How far an option is above both limits, as a share of them; 0 within."""
        over = 0.0
        if self.deadline_s is not None:
            over += max(0.0, option.total_s / self.deadline_s - 1)
        if self.budget_usd is not None:
            # Without a price nothing says by how much
            known = option.cost_usd is not None
            over += max(0.0, (option.cost_usd or 0.0) / self.budget_usd - 1) if known else 1.0
        return over

    def _in_time(self, option: Option) -> bool:
        return self.deadline_s is None or option.total_s <= self.deadline_s

    def _in_budget(self, option: Option) -> bool:
        if self.budget_usd is None:
            return True
        return option.cost_usd is not None and option.cost_usd <= self.budget_usd


def nothing_fits(options: Sequence[Option], limits: Limits) -> str:
    """Names the limit that no option keeps, with the nearest that would."""
    if not options:
        return "memory binds: no setting fits into the memory of any of the devices."
    fastest = min(options, key=lambda option: option.total_s)
    if limits.deadline_s is not None and fastest.total_s > limits.deadline_s:
        return (
            f"the deadline binds: the fastest option, {_name(fastest)}, takes "
            f"{_hours(fastest.total_s)}, and the deadline is {_hours(limits.deadline_s)}."
        )
    cheapest = min(options, key=_cost)
    if limits.budget_usd is not None and _cost(cheapest) > limits.budget_usd:
        return (
            f"the budget binds: the cheapest option, {_name(cheapest)}, costs "
            f"{_cost(cheapest):,.2f} USD, and the budget is {limits.budget_usd:,.2f} USD."
        )
    in_time = [o for o in options if replace(limits, budget_usd=None).allow(o)]
    cheapest = min(in_time, key=_cost)
    return (
        f"deadline and budget bind together: within the deadline the cheapest option, "
        f"{_name(cheapest)}, costs {_cost(cheapest):,.2f} USD in {_hours(cheapest.total_s)}."
    )


def bindings(best: Option, options: Sequence[Option], limits: Limits, key: Key) -> tuple[str, ...]:
    """Says for each limit what would be better without it."""
    notes: list[str] = []
    for name, field in (("budget", "budget_usd"), ("deadline", "deadline_s")):
        if getattr(limits, field) is None:
            continue
        relaxed = replace(limits, **{field: None})
        other = min((o for o in options if relaxed.allow(o)), key=key)
        if key(other) < key(best):
            cost = "" if other.cost_usd is None else f" and {other.cost_usd:,.2f} USD"
            notes.append(
                f"the {name} binds: without it {_name(other)} would do it in "
                f"{_hours(other.total_s)}{cost}."
            )
    return tuple(notes)


def _cost(option: Option) -> float:
    return float("inf") if option.cost_usd is None else option.cost_usd


def _name(option: Option) -> str:
    count = f"{option.devices} x " if option.devices > 1 else ""
    saving = " with checkpointing" if option.checkpointing else ""
    where = f"{count}{option.hardware} with batch {option.batch_size}"
    return f"{where} in {option.precision}{saving}"


def _hours(seconds: float) -> str:
    return f"{seconds / SECONDS_PER_HOUR:,.2f} h"
