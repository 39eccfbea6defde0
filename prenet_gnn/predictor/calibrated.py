"""A frozen predictor with a machine's corrections on top."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prenet_gnn.catalogue.spec import Hardware
    from prenet_gnn.network.checkpoint import Checkpoint
    from prenet_gnn.predictor.calibration import Calibration
    from prenet_gnn.predictor.interface import TimePredictor
    from prenet_gnn.predictor.prediction import Prediction
    from prenet_gnn.workload.workload import Workload
    from tracing import OpGraph


class CalibratedPredictor:
    """A predictor whose times are corrected for one device; others pass unchanged."""

    def __init__(self, base: TimePredictor, calibration: Calibration) -> None:
        """Puts corrections on top of a predictor."""
        self.base, self.calibration = base, calibration

    @property
    def checkpoint(self) -> Checkpoint:
        """The weights that answer, and the facts about them."""
        return self.base.checkpoint

    def predict(
        self, graph: OpGraph, hardware: str | Hardware = "", workload: Workload | None = None
    ) -> Prediction:
        """As the predictor's own, corrected."""
        return self.calibration.correct(self.base.predict(graph, hardware, workload))

    def predict_many(
        self,
        graphs: OpGraph | Sequence[OpGraph],
        hardware: str | Hardware | Sequence[str | Hardware],
        workloads: Workload | Sequence[Workload] | None = None,
    ) -> list[Prediction]:
        """As the predictor's own, corrected."""
        found = self.base.predict_many(graphs, hardware, workloads)
        return [self.calibration.correct(prediction) for prediction in found]
