"""Simple predictors that the network has to beat, each on whole-graph sums."""

from prenet_gnn.evaluation.baselines import learned, simple
from prenet_gnn.evaluation.baselines.base import (
    BASELINES,
    Baseline,
    get_baseline,
    register_baseline,
)

__all__ = ["BASELINES", "Baseline", "get_baseline", "learned", "register_baseline", "simple"]
