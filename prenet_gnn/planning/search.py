"""Finds the best device, batch size and settings for a whole run within limits.

A small space is tried completely. In a large one, what is known about runs comes first: peak memory
decides which batch sizes a device can hold, so the first round asks for the largest of them with
every setting on every device, and the second for the smaller ones of the settings that led. From
there a multi-objective sampler goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prenet_gnn.planning.comparison import front
from prenet_gnn.planning.limits import Key, PlanError, bindings, nothing_fits
from prenet_gnn.planning.option import Option
from prenet_gnn.planning.request import PlanRequest
from prenet_gnn.planning.space import Candidate, Space, Tried
from prenet_gnn.predictor.questions import check_graph

if TYPE_CHECKING:
    from prenet_gnn.predictor.interface import TimePredictor
    from prenet_gnn.workload.workload import Workload
    from tracing import OpGraph

# The largest space that is tried completely without being asked to.
SMALL_GRID = 256
LEADERS = 8
ALTERNATIVES = 5
CHECKPOINTING_NOTE = (
    "checkpointing is an approximation: each repeated block runs its forward once more in backward."
)
ACCUMULATION_NOTE = (
    "accumulation is an approximation: forward and backward as often as needed, then one optimizer "
    "step, with all gradients in memory."
)
PARALLEL_NOTE = (
    "several devices are a coarse outlook: ring all-reduce of the gradients in buckets, overlapped "
    "with backward; the interval is that of one device."
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The best option, the next best devices, and what the limits cost.

    Attributes:
        best: The option with the smallest objective within the limits.
        alternatives: Best option of each of the next devices.
        trade_off: Options that none beats in both time and cost, fastest first.
        binding: What would be better without each limit that matters, in sentences.
        notes: Approximations that the shown options rest on.
        tried: How many options were predicted.
        sampler: How they were chosen: `grid`, `nsga2` or `none`.
    """

    best: Option
    alternatives: tuple[Option, ...]
    trade_off: tuple[Option, ...]
    binding: tuple[str, ...]
    notes: tuple[str, ...] = ()
    tried: int = 0
    sampler: str = "none"

    def to_dict(self) -> dict[str, Any]:
        """Gives plain values, ready for JSON."""
        return {
            "best": self.best.to_dict(),
            "alternatives": [option.to_dict() for option in self.alternatives],
            "trade_off": [option.to_dict() for option in self.trade_off],
            "binding": list(self.binding),
            "notes": list(self.notes),
            "tried": self.tried,
            "sampler": self.sampler,
        }


def plan(
    graph: OpGraph, predictor: TimePredictor, workload: Workload, request: PlanRequest
) -> Plan:
    """Searches batch size x precision x layout x compilation x checkpointing x device.

    Gradient accumulation follows from the batch size and the global batch.

    Args:
        graph: What runs; resized to each batch size, so one trace is enough.
        predictor: Answers the questions.
        workload: Mode, optimizer and framework; the other fields are searched.
        request: What has to be done and within which limits.

    Raises:
        PlanError: Nothing fits; the message names the limit that binds.
    """
    check_graph(graph)
    answers, sampler = _searched(Space(graph, predictor, workload, request), request)
    options = [answer.option for answer in answers if answer.fits]
    within = [option for option in options if request.limits.allow(option)]
    if not within:
        raise PlanError(nothing_fits(options, request.limits))
    ranked = _best_per_device(within, request.objective)
    alternatives, curve = tuple(ranked[1 : 1 + ALTERNATIVES]), _trade_off(within)
    return Plan(
        best=ranked[0],
        alternatives=alternatives,
        trade_off=curve,
        binding=bindings(ranked[0], options, request.limits, _key(request.objective)),
        notes=_notes((ranked[0], *alternatives, *curve)),
        tried=len(answers),
        sampler=sampler,
    )


def _searched(space: Space, request: PlanRequest) -> tuple[list[Tried], str]:
    space.measure_memory()
    if request.sampler == "none":
        return _rounds(space), "none"
    from prenet_gnn.planning.samplers import Study

    study = Study(space, request.limits, _second(request.objective), request.seed)
    small = request.sampler == "auto" and study.points <= SMALL_GRID
    if small or request.sampler == "grid":
        return study.grid(), "grid"
    known = _rounds(space)
    return known + study.evolve(known, request.trials), "nsga2"


def _rounds(space: Space) -> list[Tried]:
    """The largest batch of every setting on every device, then smaller ones of the leaders."""
    found: list[Tried] = []
    asked: set[Candidate] = set()
    candidates = _first_round(space)
    while candidates:
        asked.update(candidates)
        answers = space.ask(candidates)
        found += answers
        # Context and fragmentation take memory beyond the peak that the choice went by.
        smaller = [_smaller(space, a.candidate) for a in answers if not a.fits]
        candidates = [c for c in smaller if c is not None and c not in asked]
    key, limits = _key(space.request.objective), space.request.limits
    fitting = [answer for answer in found if answer.fits]
    allowed = [answer for answer in fitting if limits.allow(answer.option)] or fitting
    leaders = sorted(allowed, key=lambda answer: key(answer.option))[:LEADERS]
    second = [
        Candidate(c.device, c.workload, size, saves)
        for c in (answer.candidate for answer in leaders)
        for saves in space.checkpointing
        for size in space.sizes(c.device, c.workload, saves)
    ]
    return found + space.ask([c for c in dict.fromkeys(second) if c not in asked])


def _first_round(space: Space) -> list[Candidate]:
    found = []
    for device, workload in space.settings():
        # Recomputing only pays where it makes room, so it comes second here
        for saves in space.checkpointing:
            sizes = space.sizes(device, workload, saves)
            if sizes:
                found.append(Candidate(device, workload, sizes[-1], saves))
                break
    return found


def _smaller(space: Space, candidate: Candidate) -> Candidate | None:
    device, workload, saves = candidate.device, candidate.workload, candidate.checkpointing
    sizes = [s for s in space.sizes(device, workload, saves) if s < candidate.batch_size]
    if sizes:
        return Candidate(device, workload, sizes[-1], saves)
    if not saves and True in space.checkpointing:
        sizes = space.sizes(device, workload, True)
        return Candidate(device, workload, sizes[-1], True) if sizes else None
    return None


def _second(objective: str) -> Any:
    """The objective beside time; what has no price is as dear as can be."""
    field = "energy_kwh" if objective == "energy" else "cost_usd"

    def value(answer: Tried) -> float:
        found = getattr(answer.option, field)
        return 1e9 + answer.option.total_s if found is None else float(found)

    return value


def _key(objective: str) -> Key:
    field = {"time": "total_s", "cost": "cost_usd", "energy": "energy_kwh"}[objective]

    def key(option: Option) -> tuple[float, float]:
        value = getattr(option, field)
        return (float("inf") if value is None else value, option.total_s)

    return key


def _best_per_device(options: Sequence[Option], objective: str) -> list[Option]:
    found: dict[str, Option] = {}
    for option in sorted(options, key=_key(objective)):
        found.setdefault(option.hardware, option)
    return list(found.values())


def _trade_off(options: Sequence[Option]) -> tuple[Option, ...]:
    priced = [option for option in options if option.cost_usd is not None]
    best = front([(option.total_s, option.cost_usd or 0.0) for option in priced])
    return tuple(sorted((priced[i] for i in best), key=lambda option: option.total_s))


def _notes(shown: Sequence[Option]) -> tuple[str, ...]:
    pairs = (
        (any(option.accumulation > 1 for option in shown), ACCUMULATION_NOTE),
        (any(option.checkpointing for option in shown), CHECKPOINTING_NOTE),
        (any(option.devices > 1 for option in shown), PARALLEL_NOTE),
    )
    return tuple(note for applies, note in pairs if applies)
