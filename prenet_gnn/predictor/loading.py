"""Loads the weights, and the corrections of a machine on top of them."""

from __future__ import annotations

from pathlib import Path

from prenet_gnn.network.checkpoint import load_checkpoint
from prenet_gnn.predictor.calibrated import CalibratedPredictor
from prenet_gnn.predictor.calibration import load_calibration
from prenet_gnn.predictor.interface import TimePredictor
from prenet_gnn.predictor.predictor import Predictor


def load_predictor(
    path: str | Path | None = None, calibration: str | Path | None = None
) -> TimePredictor:
    """Loads a predictor.

    Args:
        path: Folder that `prenet train` wrote; None takes the shipped weights.
        calibration: File that `prenet calibrate` wrote; its corrections go on top.

    Raises:
        CheckpointError: The weights are missing, damaged, or of another schema.
    """
    predictor = Predictor(load_checkpoint(path))
    if calibration is None:
        return predictor
    return CalibratedPredictor(predictor, load_calibration(calibration))
