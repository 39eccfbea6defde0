"""How far predictions are from the times of a records file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from prenet_gnn.data.record_file import read_records
from prenet_gnn.errors import DataError
from prenet_gnn.evaluation.report import Line, Report
from prenet_gnn.measuring.graphs import GraphSource
from prenet_gnn.training.metrics import summary

if TYPE_CHECKING:
    from prenet_gnn.predictor.interface import TimePredictor


def score_records(predictor: TimePredictor, path: Path) -> Report:
    """Scores a predictor on records of `prenet measure`."""
    source, true, guess, low, high = GraphSource(), [], [], [], []
    for record in read_records(path):
        if record.seconds is None:
            continue
        p = predictor.predict(source(record), hardware=record.hardware, workload=record.workload)
        true.append(record.seconds)
        guess.append(p.seconds)
        low.append(p.low_s)
        high.append(p.high_s)
    if not true:
        raise DataError(f"'{path}' holds no record with a time.")
    return Report((Line("records", "gnn", summary(true, guess, low, high)),), {"file": str(path)})
