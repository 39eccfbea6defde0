"""Predicts a model on this machine, then measures it there, and puts both side by side."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from prenet_gnn.data.records import MeasuredRecord
from prenet_gnn.measuring.point import Effort, Point
from prenet_gnn.predictor.calibration import family_of

if TYPE_CHECKING:
    import torch

    from prenet_gnn.predictor.interface import TimePredictor
    from prenet_gnn.predictor.prediction import Prediction

# A profiler cannot tell an optimizer's additions from a network's, so both are "other" here.
FAMILY_TITLES = {"conv": "convolutions", "matmul": "products", "recurrent": "recurrent layers"}
OTHER = "other operators"


@dataclass(frozen=True, slots=True)
class Part:
    """One line of the comparison; `measured` is None where this machine cannot tell."""

    name: str
    predicted: float
    measured: float | None

    @property
    def error(self) -> float | None:
        """Predicted over measured, minus one."""
        return self.predicted / self.measured - 1.0 if self.measured else None

    def to_dict(self) -> dict[str, Any]:
        """The line as plain data."""
        return {**asdict(self), "error": self.error}


@dataclass(frozen=True, slots=True)
class Check:
    """A prediction that was made before its measurement, and that measurement.

    Attributes:
        prediction: What was predicted for this machine's device.
        record: What was measured then; its status says whether it ran.
    """

    prediction: Prediction
    record: MeasuredRecord

    @property
    def total(self) -> Part:
        """The whole iteration in seconds."""
        return Part("iteration", self.prediction.seconds, self.record.seconds)

    @property
    def inside(self) -> bool | None:
        """The measured time lies inside the predicted interval; None if nothing was measured."""
        measured = self.record.seconds
        if measured is None:
            return None
        return self.prediction.low_s <= measured <= self.prediction.high_s

    def phases(self) -> list[Part]:
        """Seconds of the phases; the loss counts as forward, zero_grad as optimizer."""
        p, r = self.prediction, self.record
        if r.mode == "infer":
            return []
        return [
            Part("forward", p.forward_s, _sum(r.forward_s, r.loss_s)),
            Part("backward", p.backward_s, _sum(r.backward_s)),
            Part("optimizer", p.optimizer_s, _sum(r.optimizer_s, r.zero_grad_s)),
        ]

    def families(self) -> list[Part]:
        """Seconds by operator family, costliest first.

        A profiler slows what it watches, so the measured column is each family's share of the
        profiled iteration times the iteration that was measured without it.
        """
        predicted = _by_family(self.prediction.by_operator())
        measured = _by_family(_profiled(self.record))
        whole = sum(measured.values())
        seconds = self.record.seconds
        rows = [
            Part(
                title,
                predicted.get(title, 0.0),
                seconds * measured.get(title, 0.0) / whole if seconds and whole else None,
            )
            for title in (*FAMILY_TITLES.values(), OTHER)
        ]
        rows = [row for row in rows if row.predicted > 0 or row.measured]
        return sorted(rows, key=lambda row: -row.predicted)

    def memory(self) -> Part:
        """Peak bytes of allocated tensors."""
        measured = self.record.peak_memory_bytes
        predicted = float(self.prediction.peak_memory_bytes)
        return Part("memory", predicted, None if measured is None else float(measured))

    def to_dict(self) -> dict[str, Any]:
        """Both sides and their comparison as plain data."""
        return {
            "model": self.record.model,
            "hardware": self.prediction.hardware,
            "status": self.record.status,
            "inside_interval": self.inside,
            "total": self.total.to_dict(),
            "phases": [part.to_dict() for part in self.phases()],
            "families": [part.to_dict() for part in self.families()],
            "memory": self.memory().to_dict(),
            "prediction": self.prediction.to_dict(),
            "record": asdict(self.record),
        }


def check_model(
    point: Point,
    predictor: TimePredictor,
    device: str | torch.device | None = None,
    effort: Effort | None = None,
) -> Check:
    """Predicts an iteration on this machine's device and then runs it.

    Args:
        point: The model, its sizes and how to run it.
        predictor: What predicts.
        device: Where to run; None takes an accelerator if there is one.
        effort: Time to spend; the operators are looked at in any case.

    Raises:
        PreNetError: The device, the spec or a setting is wrong.
    """
    from prenet_gnn.measuring.building import torch_settings
    from prenet_gnn.measuring.devices import resolve_device
    from prenet_gnn.measuring.graphs import GraphSource
    from prenet_gnn.measuring.runner import base_record, measure_model

    place = resolve_device(device)
    effort = replace(effort or Effort(), profile=True)
    # A device that the catalogue does not know is measured with these threads too.
    with torch_settings(point.workload, effort.threads):
        planned = base_record(point, place)
    graph = GraphSource()(planned)
    prediction = predictor.predict(graph, planned.device, planned.workload)
    return Check(prediction, measure_model(point, place, effort))


def _sum(*parts: float | None) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _by_family(seconds: dict[str, float]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for operator, part_s in seconds.items():
        title = FAMILY_TITLES.get(family_of(operator), OTHER)
        sums[title] = sums.get(title, 0.0) + part_s
    return sums


def _profiled(record: MeasuredRecord) -> dict[str, float]:
    """Own seconds by operator; on a GPU without the kernels, which list the same time again."""
    return {
        name: own_s
        for name, own_s, _ in record.operators
        if record.device_type == "cpu" or name.startswith("aten::")
    }
