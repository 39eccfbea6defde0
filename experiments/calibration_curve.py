"""How the error on a new device falls with 1, 3, 10, 30 measurements, against plain rescaling.

    python -m experiments.calibration_curve RECORDS --weights runs/without_the_device

RECORDS is a file of `prenet measure` of a device that the weights were not trained on. Points are
drawn at random for the fit, by model, and all models that were not drawn are predicted.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prenet_gnn.calibrated import GraphSource
from prenet_gnn.calibration import MODEL_NOISE, describe, fit_factors, measured_device
from prenet_gnn.errors import PreNetError
from prenet_gnn.measuring.records import MeasuredRecord, read_records

COUNTS = (0, 1, 3, 10, 30)
REPEATS = 50


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


@dataclass(frozen=True, slots=True)
class Step:
    """Mean absolute percentage errors after so many measurements, over all repeats."""

    count: int
    calibrated: float
    rescaled: float
    spread: float


def curve(
    points: Sequence[Point], counts: Sequence[int] = COUNTS, repeats: int = REPEATS, seed: int = 0
) -> list[Step]:
    """Errors by number of measurements; a model is never in the fit and in the test.

    `rescaled` multiplies by the geometric mean of measured over predicted; `spread` is the
    standard deviation of the calibrated error over the repeats.
    """
    steps = []
    models = sorted({point.model for point in points})
    for count in counts:
        if count >= len(models):
            continue
        errors, plain = [], []
        for repeat in range(repeats if count else 1):
            rng = random.Random(f"{seed}/{count}/{repeat}")
            chosen = set(rng.sample(models, count))
            fit = [rng.choice([p for p in points if p.model == m]) for m in sorted(chosen)]
            test = [p for p in points if p.model not in chosen]
            errors.append(_calibrated_error(fit, test))
            plain.append(_rescaled_error(fit, test))
        spread = statistics.pstdev(errors)
        steps.append(Step(count, statistics.fmean(errors), statistics.fmean(plain), spread))
    return steps


def _mape(pairs: Sequence[tuple[float, float]]) -> float:
    return 100 * statistics.fmean(abs(guess / truth - 1) for guess, truth in pairs)


def _calibrated_error(fit: Sequence[Point], test: Sequence[Point]) -> float:
    if not fit:
        return _rescaled_error(fit, test)
    noise = [MODEL_NOISE] * len(fit)
    found = fit_factors("", [p.features for p in fit], [p.log_ratio for p in fit], noise)
    return _mape([(p.predicted_s * found.factor(p.features), p.measured_s) for p in test])


def _rescaled_error(fit: Sequence[Point], test: Sequence[Point]) -> float:
    factor = math.exp(statistics.fmean(p.log_ratio for p in fit)) if fit else 1.0
    return _mape([(p.predicted_s * factor, p.measured_s) for p in test])


def points_of(records: Sequence[MeasuredRecord], weights: Path | None) -> list[Point]:
    """Predicts every record of a whole model; single layers are left out."""
    from prenet_gnn.predictor import load_predictor

    predictor, graphs = load_predictor(weights), GraphSource()
    found = []
    for record in records:
        if record.seconds is None or record.model.startswith("layer:"):
            continue
        prediction = predictor.predict(graphs(record), measured_device(record), record.workload)
        features = describe(prediction, record.workload)
        found.append(Point(record.model, features, prediction.seconds, record.seconds))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the curve as a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("records", type=Path, help=".jsonl or .jsonl.gz file of one device")
    parser.add_argument("--weights", type=Path, help="folder with weights; default: the shipped")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="random draws per count")
    arguments = parser.parse_args(argv)
    try:
        points = points_of(read_records(arguments.records), arguments.weights)
    except PreNetError as error:
        print(f"calibration_curve: {error}", file=sys.stderr)
        return 1
    print(f"{len(points)} points of {len({p.model for p in points})} models")
    print("| measurements | calibrated | one factor |\n|---|---|---|")
    for step in curve(points, repeats=arguments.repeats):
        print(
            f"| {step.count} | {step.calibrated:.1f}% ± {step.spread:.1f} | {step.rescaled:.1f}% |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
