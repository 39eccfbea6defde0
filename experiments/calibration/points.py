"""Measurements beside their predictions: of a records file, or of devices that a fold holds out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prenet_gnn.data.records import MeasuredRecord
from prenet_gnn.measuring.graphs import GraphSource
from prenet_gnn.predictor.calibration import describe, features_of

if TYPE_CHECKING:
    from prenet_gnn.predictor.predictor import Predictor
    from prenet_gnn.training.fit import Fitted
    from prenet_gnn.training.rows import Rows

# Rows of one forward pass through the network; only memory depends on it.
ROWS_PER_BATCH = 128


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement beside its prediction without corrections."""

    model: str
    features: Mapping[str, float]
    predicted_s: float
    measured_s: float

    @property
    def log_ratio(self) -> float:
        """Logarithm of measured over predicted."""
        return math.log(self.measured_s / self.predicted_s)


def points_of(records: Sequence[MeasuredRecord], predictor: Predictor) -> list[Point]:
    """Predicts every record of a whole model; single layers are left out."""
    graphs, found = GraphSource(), []
    for record in records:
        if record.seconds is None or record.model.startswith("layer:"):
            continue
        prediction = predictor.predict(graphs(record), record.device, record.workload)
        features = describe(prediction)
        found.append(Point(record.model, features, prediction.seconds, record.seconds))
    return found


def held_out_points(
    weights: Path, number: int, kinds: Sequence[str] = ("unseen-device",)
) -> dict[str, list[Point]]:
    """Points of every machine that a fold holds out, by networks that have not seen its device.

    A machine is a device with one source and framework version, as a user has one of each.

    Args:
        weights: Folder of `prenet train`, or the one in which `experiments.accuracy` keeps the
            network of its fold.
        number: The fold.
        kinds: Kinds of test rows of the fold; `unseen-both` adds families that the networks have
            not seen either.

    Raises:
        CheckpointError: The weights are missing, or were fitted to one of the devices.
    """
    from experiments.shared.networks import load_networks, rows_and_fold

    rows, fold = rows_and_fold(number)
    networks = load_networks(weights, rows, fold)
    chosen = np.sort(np.concatenate([fold.test[kind] for kind in kinds]))
    points: dict[str, list[Point]] = {}
    for start in range(0, len(chosen), ROWS_PER_BATCH):
        part = chosen[start : start + ROWS_PER_BATCH]
        for i, point in zip(part, _predicted(networks, rows, part), strict=True):
            row = rows.frame.iloc[int(i)]
            points.setdefault(f"{row.gpu}, {row.source}, {row.framework}", []).append(point)
    return points


def _predicted(networks: Sequence[Fitted], rows: Rows, chosen: np.ndarray) -> list[Point]:
    """Mean of the networks' logarithms; the shares are those of the first."""
    import torch

    from prenet_gnn.encoding.batch import collate

    with torch.inference_mode():
        answers = []
        for fitted in networks:
            samples = [rows.sample(int(i), fitted.latents) for i in chosen]
            answers.append((samples, fitted.model(collate(samples))))
    samples, times = answers[0]
    totals = np.exp(np.mean([t.total.clamp(min=1e-9).log().numpy() for _, t in answers], axis=0))
    start, points = 0, []
    for place, i in enumerate(chosen):
        end = start + len(samples[place].encoded.operators)
        operator_s = _operator_seconds(samples[place], times.node[start:end].numpy())
        if "optimizer" in samples[place].workload.phases:
            operator_s["(optimizer)"] = float(times.optimizer[place] + times.zero_grad[place])
        features = features_of(
            operator_s,
            float(times.host[place]),
            float(times.device[place]),
            samples[place].workload,
        )
        model = f"{rows.frame.library.iat[int(i)]}:{rows.frame.model.iat[int(i)]}"
        points.append(Point(model, features, float(totals[place]), float(rows.seconds[int(i)])))
        start = end
    return points


def _operator_seconds(sample: Any, node_s: np.ndarray) -> dict[str, float]:
    from tracing.costs.vocab import KINDS

    phases = sample.workload.phases
    timed = np.array([float("forward" in phases), float("backward" in phases)])
    seconds = (node_s @ timed) * sample.encoded.counts
    found: dict[str, float] = {}
    for kind, part_s in zip(sample.encoded.kinds, seconds, strict=True):
        found[KINDS[kind]] = found.get(KINDS[kind], 0.0) + float(part_s)
    return found
