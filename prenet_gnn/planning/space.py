"""What a plan may try, and what each try would take."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prenet_gnn.catalogue.prices import HourlyPrice, hourly_prices
from prenet_gnn.memory.iteration import memory_key
from prenet_gnn.memory.peak import usable_bytes
from prenet_gnn.planning.checkpointing import checkpoint_regions, recompute_s, with_regions
from prenet_gnn.planning.devices import choose_devices, unsupported_reason
from prenet_gnn.planning.limits import PlanError
from prenet_gnn.planning.option import Option, Run, Times
from prenet_gnn.planning.parallel import data_parallel
from prenet_gnn.workload.workload import Workload

if TYPE_CHECKING:
    from prenet_gnn.catalogue.devices import Hardware
    from prenet_gnn.planning.request import PlanRequest
    from prenet_gnn.predictor.interface import TimePredictor
    from prenet_gnn.predictor.prediction import Prediction
    from tracing import OpGraph

# Whole-model half precision loses small weight updates, so it is searched for inference only.
TRAIN_PRECISIONS = ("fp32", "tf32", "amp_fp16", "amp_bf16")
INFER_PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
# Other accelerators need another build of PyTorch, or none exists; they can be named.
PLANNED_KINDS = ("gpu", "cpu")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One combination of everything that is searched; accumulation follows from the batch."""

    device: Hardware
    workload: Workload
    batch_size: int
    checkpointing: bool = False


@dataclass(frozen=True, slots=True)
class Tried:
    """What a candidate takes, and the share of the device's memory that it needs."""

    candidate: Candidate
    option: Option
    fits: bool
    memory_share: float


class Space:
    """Everything that may be tried, with the graphs for it."""

    def __init__(
        self, graph: OpGraph, predictor: TimePredictor, workload: Workload, request: PlanRequest
    ) -> None:
        """Chooses the devices and settings that the request allows."""
        self.graph, self.predictor, self.request = graph, predictor, request
        nodes = request.devices_per_node
        self.run_size = Run(request.samples, request.epochs, request.global_batch, nodes)
        default = TRAIN_PRECISIONS if workload.mode == "train" else INFER_PRECISIONS
        precisions = request.precisions or default
        self.workloads = list(workloads(graph, workload, precisions, request.compiled))
        self.devices = self._devices()
        self.checkpointing = request.checkpointing if workload.mode == "train" else (False,)
        self._regions = checkpoint_regions(graph) if True in self.checkpointing else ()
        self._graphs: dict[tuple[int, bool], OpGraph | None] = {}
        self._extra: dict[tuple[int, bool, Workload], int] = {}
        # Highest memory by batch size, workload and checkpointing
        self.needs: dict[tuple[int, Workload, bool], int] = {}

    def _devices(self) -> list[Hardware]:
        request = self.request
        devices = choose_devices(request.devices or None)
        if not request.devices:
            devices = [d for d in devices if d.kind in PLANNED_KINDS]
        self.prices: dict[str, HourlyPrice] = hourly_prices(devices, request.prices)
        if request.objective == "cost" or request.budget_usd is not None:
            devices = [d for d in devices if d.name in self.prices]
        if request.objective == "energy":
            devices = [d for d in devices if d.tdp_w]
        if request.devices_per_node > 1:
            linked = [d for d in devices if d.interconnect_bytes_per_s or d.pcie_bytes_per_s]
            # Where no device has a known link, the outlook says so for the first of them
            devices = linked or devices
        if not devices:
            raise PlanError("none of the devices has a known price or rated power; see --price.")
        return devices

    def graph_at(self, batch_size: int, checkpointing: bool) -> OpGraph | None:
        """The graph at a batch size; None where checkpointing does not apply."""
        key = (batch_size, checkpointing)
        if key not in self._graphs:
            if checkpointing:
                plain = self.graph_at(batch_size, False)
                self._graphs[key] = None
                if plain is not None and self._regions:
                    self._graphs[key] = with_regions(plain, self._regions)
            elif batch_size == self.graph.batch_size:
                self._graphs[key] = self.graph
            else:
                self._graphs[key] = self.graph.with_batch_size(batch_size)
        return self._graphs[key]

    def measure_memory(self) -> None:
        """Finds peak memory per batch size and setting, up to what the largest device holds.

        Memory hardly depends on the device, so one device that runs everything stands for all.
        """
        largest = max(device.memory_bytes for device in self.devices)
        for batch_size in self.request.candidates():
            held = list(self._measured(batch_size))
            if held and min(held) > largest:
                break
        if not self.needs:
            raise PlanError("none of the devices can run any of the precisions asked for.")
        smallest = min(self.needs, key=lambda key: self.needs[key])
        if self.needs[smallest] > largest:
            saving = " with activation checkpointing" if smallest[2] else ""
            raise PlanError(
                f"memory binds: even batch {smallest[0]} in {smallest[1].precision}{saving} needs "
                f"{self.needs[smallest] / 2**30:.1f} GiB, and the largest device has "
                f"{largest / 2**30:.1f} GiB."
            )

    def _measured(self, batch_size: int) -> Iterator[int]:
        able: dict[Workload, Hardware] = {}
        for device, workload in self.settings():
            able.setdefault(workload, device)
        for saves in self.checkpointing:
            graph = self.graph_at(batch_size, saves)
            if graph is None or not able:
                continue
            predictions = self.predictor.predict_many(
                [graph] * len(able),
                hardware=list(able.values()),
                workloads=list(able),
            )
            for (workload, device), prediction in zip(able.items(), predictions, strict=True):
                candidate = Candidate(device, workload, batch_size, saves)
                need = prediction.peak_memory_bytes + self._extra_bytes(candidate, prediction)
                self.needs[batch_size, workload, saves] = need
                yield need

    def _extra_bytes(self, candidate: Candidate, prediction: Prediction) -> int:
        """Memory of accumulation and of several devices, which a single iteration does not need.

        While gradients accumulate, all of them exist during the forward pass as well. Data parallel
        keeps a copy of all gradients in its buckets.
        """
        times, nodes = self.run_size.accumulation(candidate.batch_size), self.run_size.devices
        if candidate.workload.mode != "train" or (times == 1 and nodes == 1):
            return 0
        key = (candidate.batch_size, candidate.checkpointing, memory_key(candidate.workload))
        if key not in self._extra:
            moments = prediction.memory_moments
            gradients = max((m.gradient_bytes for m in moments), default=0)
            plain = max((m.allocated_bytes for m in moments), default=0)
            lasting = max(
                (m.allocated_bytes - m.gradient_bytes + gradients for m in moments), default=0
            )
            self._extra[key] = (lasting - plain if times > 1 else 0) + (gradients * (nodes > 1))
        return self._extra[key]

    def sizes(self, device: Hardware, workload: Workload, checkpointing: bool) -> list[int]:
        """Batch sizes that the device holds, ascending."""
        return [
            size
            for size, known, saves in self.needs
            if (known, saves) == (workload, checkpointing)
            and self.needs[size, known, saves] <= device.memory_bytes
        ]

    def settings(self) -> Iterator[tuple[Hardware, Workload]]:
        """All devices with all ways to run that each supports."""
        for device in self.devices:
            for workload in self.workloads:
                if not unsupported_reason(device, workload):
                    yield device, workload

    def ask(self, candidates: Sequence[Candidate]) -> list[Tried]:
        """Predicts candidates; those whose graph does not exist are left out."""
        chosen = [
            (c, g)
            for c in candidates
            if (g := self.graph_at(c.batch_size, c.checkpointing)) is not None
        ]
        if not chosen:
            return []
        predictions = self.predictor.predict_many(
            [graph for _, graph in chosen],
            hardware=[candidate.device for candidate, _ in chosen],
            workloads=[candidate.workload for candidate, _ in chosen],
        )
        return [
            self._tried(candidate, graph, prediction)
            for (candidate, graph), prediction in zip(chosen, predictions, strict=True)
        ]

    def _tried(self, candidate: Candidate, graph: OpGraph, prediction: Prediction) -> Tried:
        device = candidate.device
        extra = self._extra_bytes(candidate, prediction)
        need = prediction.memory.get("device_bytes", prediction.peak_memory_bytes) + extra
        fits = prediction.fits and (not extra or need <= usable_bytes(device))
        again = recompute_s(graph, prediction) if candidate.checkpointing else 0.0
        exposed = 0.0
        if self.run_size.devices > 1 and candidate.workload.mode == "train":
            exposed = data_parallel(graph, prediction, device, self.run_size.devices).exposed_s
        option = self.run_size.option(
            device,
            candidate.workload,
            candidate.batch_size,
            Times(prediction, again, exposed, candidate.checkpointing, extra),
            self.prices.get(device.name),
        )
        return Tried(candidate, option, fits, need / device.memory_bytes)


def workloads(
    graph: OpGraph, base: Workload, precisions: Sequence[str], compiled: Sequence[bool]
) -> Iterator[Workload]:
    """Lists the ways to run a graph; the layout only matters where there are 2-D convolutions."""
    layouts = (False, True) if _has_images(graph) else (False,)
    for precision, channels_last, compile_it in itertools.product(precisions, layouts, compiled):
        yield Workload(
            mode=base.mode,
            precision=precision,
            optimizer=base.optimizer,
            channels_last=channels_last,
            compiled=compile_it,
            cudnn_benchmark=base.cudnn_benchmark,
            framework=base.framework,
            timed=base.timed,
        )


def _has_images(graph: OpGraph) -> bool:
    return any(
        node.kind == "conv" and node.input_specs and len(node.input_specs[0].shape) == 4
        for node in graph.nodes
    )
