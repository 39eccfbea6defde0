"""Fits a machine's corrections to its measured records.

All factors are shrunk towards one by their priors, so one measurement moves little but the common
factor, and more measurements free the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prenet_gnn.data.records import MeasuredRecord
from prenet_gnn.errors import DataError
from prenet_gnn.predictor.calibration import Calibration, describe, prior_std

if TYPE_CHECKING:
    import numpy as np

    from prenet_gnn.predictor.interface import TimePredictor
    from tracing import OpGraph

# What a prediction misses even with perfect corrections, as a spread of its logarithm
MODEL_NOISE = 0.2
# Single layers follow other protocols.
LAYER_NOISE = 0.3
# Degrees of freedom of the residuals: one disturbed measurement must not bend the rest.
TAIL = 4.0
# And of the factors: most devices are close to their prediction, a few are far from it.
PRIOR_TAIL = 2.0
ROBUST_ROUNDS = 10


def fit_factors(
    hardware: str,
    features: Sequence[Mapping[str, float]],
    log_ratios: Sequence[float],
    noise: Sequence[float],
) -> Calibration:
    """Most probable factors given heavy-tailed priors and heavy-tailed noise.

    Args:
        hardware: Device that was measured.
        features: One row per measurement; see `describe`.
        log_ratios: Logarithm of measured over predicted seconds.
        noise: Standard deviation of each logarithm.
    """
    import numpy as np

    names = sorted({name for row in features for name, value in row.items() if value})
    matrix = np.array([[row.get(name, 0.0) for name in names] for row in features])
    target, scale = np.asarray(log_ratios, dtype=float), np.asarray(noise, dtype=float)
    width = np.array([prior_std(name) for name in names])
    trust, pull = np.ones(len(target)), np.ones(len(names))
    for _ in range(ROBUST_ROUNDS):
        weight = trust / scale**2
        prior = np.diag(pull / width**2)
        covariance = np.linalg.inv(prior + (matrix.T * weight) @ matrix)
        found = covariance @ (matrix.T * weight) @ target
        residual = target - matrix @ found
        trust = (TAIL + 1.0) / (TAIL + (residual / scale) ** 2)
        pull = (PRIOR_TAIL + 1.0) / (PRIOR_TAIL + (found / width) ** 2)
    return Calibration(
        hardware=hardware,
        records=len(target),
        log_factors={name: float(value) for name, value in zip(names, found, strict=True)},
        covariance=tuple(tuple(float(v) for v in row) for row in covariance),
        residual_std=_residual_std(residual, trust),
    )


def _residual_std(residual: np.ndarray[Any, Any], trust: np.ndarray[Any, Any]) -> float:
    """Spread of the residuals, drawn to the usual noise where there are few."""
    prior_weight = 4.0
    total = float((trust * residual**2).sum()) + prior_weight * MODEL_NOISE**2
    return math.sqrt(total / (float(trust.sum()) + prior_weight))


def usable_records(
    records: Iterable[MeasuredRecord], hardware: str | None = None
) -> tuple[MeasuredRecord, ...]:
    """Records with a time, all of one device.

    Raises:
        DataError: There is none, or there are several devices and none was chosen.
    """
    found = tuple(r for r in records if r.status == "ok" and r.seconds)
    devices = sorted({r.hardware for r in found})
    if hardware is not None:
        found = tuple(r for r in found if r.hardware == hardware)
    if not found:
        hint = f" of '{hardware}' (there are: {', '.join(devices)})" if hardware else ""
        raise DataError(f"no measured time{hint} to calibrate with; run 'prenet measure' first.")
    if hardware is None and len(devices) > 1:
        raise DataError(f"the records are of several devices ({', '.join(devices)}); keep one.")
    return found


def fit_calibration(
    records: Iterable[MeasuredRecord],
    predictor: TimePredictor,
    hardware: str | None = None,
    graph_of: Callable[[MeasuredRecord], OpGraph] | None = None,
) -> Calibration:
    """Fits corrections to measured records; one is enough, ten free the finer factors.

    Args:
        records: Measurements of one device.
        predictor: The frozen predictor, without corrections.
        hardware: Device to use where the records are of several.
        graph_of: Traces a record's model; None builds it from its spec.
    """
    chosen = usable_records(records, hardware)
    if graph_of is None:
        from prenet_gnn.measuring.graphs import GraphSource

        graph_of = GraphSource()
    features, ratios, noise = [], [], []
    for record in chosen:
        graph = graph_of(record)
        prediction = predictor.predict(graph, hardware=record.device, workload=record.workload)
        assert record.seconds is not None
        features.append(describe(prediction))
        ratios.append(math.log(record.seconds / prediction.seconds))
        noise.append(_noise(record))
    return fit_factors(chosen[0].hardware, features, ratios, noise)


def _noise(record: MeasuredRecord) -> float:
    base = LAYER_NOISE if record.model.startswith("layer:") else MODEL_NOISE
    assert record.seconds is not None
    mean_error = (record.std_s or 0.0) / record.seconds / math.sqrt(max(len(record.samples_s), 1))
    return math.hypot(base, mean_error)
