"""A frozen predictor with a machine's corrections on top, and the graphs of measured records."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from prenet_gnn.calibration import Calibration, describe
from prenet_gnn.measuring.records import MeasuredRecord
from prenet_gnn.workload import Workload

if TYPE_CHECKING:
    from prenet_gnn.predictor import Prediction, Predictor
    from tracing import OpGraph

# From here on the residuals say how wide an interval must be.
MIN_RECORDS_FOR_SPREAD = 8
# Two-sided 90% of a normal distribution
Z_90 = 1.645


class GraphSource:
    """Traces the model of a record; records that differ in the batch share one trace."""

    def __init__(self) -> None:
        """Starts without traces."""
        self._graphs: dict[tuple[Any, ...], OpGraph] = {}

    def __call__(self, record: MeasuredRecord) -> OpGraph:
        """The record's graph at its batch size."""
        from prenet_gnn.measuring.building import build
        from tracing import trace

        key = (record.model, record.image_size, record.seq_len, record.mode)
        if key not in self._graphs:
            sizes = (record.batch_size, record.image_size, record.seq_len)
            model, args, kwargs = build(record.model, *sizes, record.mode)
            self._graphs[key] = trace(model, args, kwargs)
        graph = self._graphs[key]
        same = graph.batch_size == record.batch_size
        return graph if same else graph.with_batch_size(record.batch_size)


class CalibratedPredictor:
    """A predictor whose times are corrected for one device; others pass unchanged."""

    def __init__(self, predictor: Predictor, calibration: Calibration) -> None:
        """Puts corrections on top of a predictor."""
        self.base, self.calibration = predictor, calibration

    def __getattr__(self, name: str) -> Any:
        """Everything else is the predictor's own."""
        if name in ("base", "calibration"):  # not yet set while being copied
            raise AttributeError(name)
        return getattr(self.base, name)

    def predict(
        self, graph: OpGraph, hardware: Any = None, workload: Workload | None = None
    ) -> Prediction:
        """As the predictor's own, corrected."""
        workload = workload or Workload()
        prediction = self.base.predict(graph, hardware=hardware, workload=workload)
        return self._corrected(prediction, graph, workload)

    def predict_many(self, graphs: Any, hardware: Any, workloads: Any) -> list[Prediction]:
        """As the predictor's own, corrected."""
        found = self.base.predict_many(graphs, hardware=hardware, workloads=workloads)
        return [
            self._corrected(prediction, _item(graphs, i), _item(workloads, i) or Workload())
            for i, prediction in enumerate(found)
        ]

    def _corrected(self, prediction: Prediction, graph: OpGraph, workload: Workload) -> Prediction:
        known = self.calibration
        if prediction.hardware != known.hardware:
            warning = f"the calibration is for {known.hardware} and was not used"
            return dataclasses.replace(prediction, warnings=(*prediction.warnings, warning))
        features = describe(prediction, len(graph.nodes), workload)
        factor = known.factor(features)
        low_s, high_s = prediction.low_s * factor, prediction.high_s * factor
        if known.records >= MIN_RECORDS_FOR_SPREAD:
            width = math.exp(Z_90 * known.log_std(features))
            low_s = max(low_s, prediction.seconds * factor / width)
            high_s = min(high_s, prediction.seconds * factor * width)
        scaled = prediction.scaled(factor)
        return dataclasses.replace(scaled, low_s=low_s, high_s=high_s)


def _item(values: Any, index: int) -> Any:
    return values[index] if isinstance(values, list | tuple) else values
