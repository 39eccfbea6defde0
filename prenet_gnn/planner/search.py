"""Finds the best device, batch size and settings for a whole run within limits.

The search has two rounds. Peak memory decides which batch sizes a device can hold, so the first
round asks for the largest of them with every setting on every device. The second round tries the
smaller batch sizes for the settings that led the first.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prenet_gnn.planner.comparison import choose_devices, front
from prenet_gnn.planner.limits import Key, PlanError, bindings, nothing_fits
from prenet_gnn.planner.prices import Rate, hourly_rates
from prenet_gnn.planner.request import PlanRequest
from prenet_gnn.planner.settings import Option, Run, unsupported_reason, workloads
from prenet_gnn.workload import Workload

if TYPE_CHECKING:
    from prenet_gnn.hardware import Hardware
    from prenet_gnn.predictor import Predictor
    from tracing import OpGraph

# Whole-model half precision loses small weight updates, so it is searched for inference only.
TRAIN_PRECISIONS = ("fp32", "tf32", "amp_fp16", "amp_bf16")
INFER_PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
# Other accelerators need another build of PyTorch, or none exists; they can be named.
PLANNED_KINDS = ("gpu", "cpu")
LEADERS = 8
ALTERNATIVES = 5

Candidate = tuple["Hardware", Workload, int]

__all__ = ["Plan", "PlanError", "PlanRequest", "plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The best option, the next best devices, and what the limits cost.

    Attributes:
        best: The option with the smallest objective within the limits.
        alternatives: Best option of each of the next devices.
        trade_off: Options that none beats in both time and cost, fastest first.
        binding: What would be better without each limit that matters, in sentences.
    """

    best: Option
    alternatives: tuple[Option, ...]
    trade_off: tuple[Option, ...]
    binding: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Gives plain values, ready for JSON."""
        return {
            "best": self.best.to_dict(),
            "alternatives": [option.to_dict() for option in self.alternatives],
            "trade_off": [option.to_dict() for option in self.trade_off],
            "binding": list(self.binding),
        }


def plan(graph: OpGraph, predictor: Predictor, workload: Workload, request: PlanRequest) -> Plan:
    """Searches batch size x precision x layout x compilation x device.

    Args:
        graph: What runs; resized to each batch size, so one trace is enough.
        predictor: Answers the questions.
        workload: Mode, optimizer and framework; the other fields are searched.
        request: What has to be done and within which limits.

    Raises:
        PlanError: Nothing fits; the message names the limit that binds.
    """
    search = _Search(graph, predictor, workload, request)
    options = search.run()
    within = [option for option in options if request.limits.allow(option)]
    if not within:
        raise PlanError(nothing_fits(options, request.limits))
    ranked = _best_per_device(within, request.objective)
    return Plan(
        best=ranked[0],
        alternatives=tuple(ranked[1 : 1 + ALTERNATIVES]),
        trade_off=_trade_off(within),
        binding=bindings(ranked[0], options, request.limits, _key(request.objective)),
    )


class _Search:
    """Holds what both rounds share."""

    def __init__(
        self, graph: OpGraph, predictor: Predictor, workload: Workload, request: PlanRequest
    ) -> None:
        self.graph, self.predictor, self.request = graph, predictor, request
        self.run_size = Run(request.samples, request.epochs, request.global_batch)
        default = TRAIN_PRECISIONS if workload.mode == "train" else INFER_PRECISIONS
        precisions = request.precisions or default
        self.workloads = list(workloads(graph, workload, precisions, request.compiled))
        self.devices = choose_devices(request.devices or None)
        if not request.devices:
            self.devices = [d for d in self.devices if d.kind in PLANNED_KINDS]
        self.rates: dict[str, Rate] = hourly_rates(self.devices, request.prices)
        if request.objective == "cost" or request.budget_usd is not None:
            self.devices = [d for d in self.devices if d.name in self.rates]
        if request.objective == "energy":
            self.devices = [d for d in self.devices if d.tdp_w]
        if not self.devices:
            raise PlanError("none of the devices has a known price or rated power; see --price.")
        self.graphs: dict[int, OpGraph] = {}
        self.needs: dict[tuple[int, Workload], int] = {}

    def run(self) -> list[Option]:
        self._measure_memory()
        options: list[tuple[Candidate, Option]] = []
        asked: set[Candidate] = set()
        candidates = self._first_round()
        while candidates:
            asked.update(candidates)
            fitting, too_large = self._ask(candidates)
            options += fitting
            # Context and fragmentation take memory beyond the peak that the choice went by.
            candidates = [smaller for each in too_large if (smaller := self._smaller(each))]
        second = self._second_round(options, asked)
        return [option for _, option in [*options, *self._ask(second)[0]]]

    def _smaller(self, candidate: Candidate) -> Candidate | None:
        device, workload, batch_size = candidate
        sizes = [size for size in self._sizes(device, workload) if size < batch_size]
        return (device, workload, sizes[-1]) if sizes else None

    def _measure_memory(self) -> None:
        """Finds peak memory per batch size and setting, up to what the largest device holds.

        Memory hardly depends on the device, so one device that runs everything stands for all.
        """
        largest = max(device.memory_bytes for device in self.devices)
        for batch_size in self.request.candidates():
            graph = self.graph
            if graph.batch_size != batch_size:
                graph = graph.with_batch_size(batch_size)
            self.graphs[batch_size] = graph
            for workload in self.workloads:
                device = self._able(workload)
                if device is None:
                    continue
                prediction = self.predictor.predict(graph, hardware=device, workload=workload)
                self.needs[batch_size, workload] = prediction.peak_memory_bytes
            held = [need for (size, _), need in self.needs.items() if size == batch_size]
            if held and min(held) > largest:
                break
        if not self.needs:
            raise PlanError("none of the devices can run any of the precisions asked for.")
        smallest = min(self.needs, key=lambda key: self.needs[key])
        if self.needs[smallest] > largest:
            raise PlanError(
                f"memory binds: even batch {smallest[0]} in {smallest[1].precision} needs "
                f"{self.needs[smallest] / 2**30:.1f} GiB, and the largest device has "
                f"{largest / 2**30:.1f} GiB."
            )

    def _able(self, workload: Workload) -> Hardware | None:
        return next((d for d in self.devices if not unsupported_reason(d, workload)), None)

    def _sizes(self, device: Hardware, workload: Workload) -> list[int]:
        """Batch sizes that the device holds, ascending."""
        return [
            size
            for size in self.graphs
            if self.needs.get((size, workload), device.memory_bytes + 1) <= device.memory_bytes
        ]

    def _first_round(self) -> list[Candidate]:
        return [
            (device, workload, sizes[-1])
            for device, workload in itertools.product(self.devices, self.workloads)
            if not unsupported_reason(device, workload) and (sizes := self._sizes(device, workload))
        ]

    def _second_round(
        self, options: Sequence[tuple[Candidate, Option]], asked: set[Candidate]
    ) -> list[Candidate]:
        key = _key(self.request.objective)
        allowed = [pair for pair in options if self.request.limits.allow(pair[1])] or options
        leaders = sorted(allowed, key=lambda pair: key(pair[1]))[:LEADERS]
        return [
            (device, workload, size)
            for (device, workload, _), _ in leaders
            for size in self._sizes(device, workload)
            if (device, workload, size) not in asked
        ]

    def _ask(
        self, candidates: Sequence[Candidate]
    ) -> tuple[list[tuple[Candidate, Option]], list[Candidate]]:
        """Predicts candidates; gives an option for each that fits, and those that do not."""
        if not candidates:
            return [], []
        predictions = self.predictor.predict_many(
            [self.graphs[size] for _, _, size in candidates],
            hardware=[device for device, _, _ in candidates],
            workloads=[workload for _, workload, _ in candidates],
        )
        fitting: list[tuple[Candidate, Option]] = []
        too_large: list[Candidate] = []
        for candidate, prediction in zip(candidates, predictions, strict=True):
            device, workload, size = candidate
            if not prediction.fits:
                too_large.append(candidate)
                continue
            rate = self.rates.get(device.name)
            option = self.run_size.option(device, workload, size, prediction, rate)
            fitting.append((candidate, option))
        return fitting, too_large


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
