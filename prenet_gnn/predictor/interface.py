"""What callers need of a predictor, whether it is calibrated or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prenet_gnn.catalogue.spec import Hardware
    from prenet_gnn.network.checkpoint import Checkpoint
    from prenet_gnn.predictor.prediction import Prediction
    from prenet_gnn.workload.workload import Workload
    from tracing import OpGraph


class TimePredictor(Protocol):
    """Answers how long graphs take on devices; `Predictor` and `CalibratedPredictor` are ones."""

    @property
    def checkpoint(self) -> Checkpoint:
        """The weights that answer, and the facts about them."""

    def predict(
        self, graph: OpGraph, hardware: str | Hardware = "", workload: Workload | None = None
    ) -> Prediction:
        """Predicts one iteration."""

    def predict_many(
        self,
        graphs: OpGraph | Sequence[OpGraph],
        hardware: str | Hardware | Sequence[str | Hardware],
        workloads: Workload | Sequence[Workload] | None = None,
    ) -> list[Prediction]:
        """Predicts many iterations: one for each position of the longest argument."""
