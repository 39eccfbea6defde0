"""A frozen predictor with a machine's corrections on top, and the graphs of measured records."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import TYPE_CHECKING, Any

from prenet_gnn.measuring.records import MeasuredRecord
from prenet_gnn.predictor.calibration import Calibration, describe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prenet_gnn.catalogue.spec import Hardware
    from prenet_gnn.predictor.prediction import Prediction
    from prenet_gnn.predictor.predictor import Predictor
    from prenet_gnn.workload.workload import Workload
    from tracing import OpGraph

# From here on the residuals say how wide an interval must be.
MIN_RECORDS_FOR_SPREAD = 8
# Fields of a prediction that are seconds
TIMES = (
    "seconds",
    "low_s",
    "high_s",
    "forward_s",
    "backward_s",
    "optimizer_s",
    "device_s",
    "host_s",
)
# Two-sided 90% of a normal distribution
Z_90 = 1.645


class GraphSource:
    """Traces the model of a record; records that differ in the batch share one trace.

    Where the batch is no size of the graph's own (a graph network's nodes), or another batch runs
    other operators, the model is traced at the record's batch.
    """

    def __init__(self) -> None:
        """Starts without traces."""
        self._graphs: dict[tuple[Any, ...], dict[int, OpGraph]] = {}

    def __call__(self, record: MeasuredRecord) -> OpGraph:
        """The record's graph at its batch size."""
        from prenet_gnn.measuring.building import build
        from tracing import trace
        from tracing.errors import TraceError

        key = (record.model, record.image_size, record.seq_len, record.mode)
        batch, known = record.batch_size, self._graphs.setdefault(key, {})
        if batch not in known:
            size, graph = next(iter(known.items()), (0, None))
            if graph is not None and graph.batch_size == size:
                with contextlib.suppress(TraceError):
                    return graph.with_batch_size(batch)
            sizes = (batch, record.image_size, record.seq_len)
            model, args, kwargs = build(record.model, *sizes, record.mode)
            known[batch] = trace(model, args, kwargs)
        return known[batch]


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
        self, graph: OpGraph, hardware: str | Hardware = "", workload: Workload | None = None
    ) -> Prediction:
        """As the predictor's own, corrected."""
        return self._corrected(self.base.predict(graph, hardware, workload))

    def predict_many(
        self,
        graphs: OpGraph | Sequence[OpGraph],
        hardware: str | Hardware | Sequence[str | Hardware],
        workloads: Workload | Sequence[Workload] | None = None,
    ) -> list[Prediction]:
        """As the predictor's own, corrected."""
        found = self.base.predict_many(graphs, hardware, workloads)
        return [self._corrected(prediction) for prediction in found]

    def _corrected(self, prediction: Prediction) -> Prediction:
        known = self.calibration
        if prediction.hardware != known.hardware:
            warning = f"the calibration is for {known.hardware} and was not used"
            return dataclasses.replace(prediction, warnings=(*prediction.warnings, warning))
        features = describe(prediction, prediction.workload)
        result = scaled(prediction, known.factor(features))
        if known.records < MIN_RECORDS_FOR_SPREAD:
            return result
        width = math.exp(Z_90 * known.log_std(features))
        return dataclasses.replace(
            result,
            low_s=max(result.low_s, result.seconds / width),
            high_s=min(result.high_s, result.seconds * width),
        )


def scaled(prediction: Prediction, factor: float) -> Prediction:
    """The same prediction with all its times multiplied."""
    calls = tuple(
        dataclasses.replace(
            call, forward_s=call.forward_s * factor, backward_s=call.backward_s * factor
        )
        for call in prediction.calls
    )
    times = {name: getattr(prediction, name) * factor for name in TIMES}
    return dataclasses.replace(prediction, call_source=lambda: calls, **times)
