"""How the error falls with so many measurements, calibrated and merely rescaled."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.calibration.points import Point
from experiments.shared import markdown
from experiments.shared.averages import grouped
from prenet_gnn.measuring.calibrating import MODEL_NOISE, fit_factors
from prenet_gnn.training.metrics import mape

COUNTS = (0, 1, 3, 10, 30)
REPEATS = 50


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
    by_model = grouped(points, lambda point: point.model)
    models = sorted(by_model)
    for count in counts:
        if count >= len(models):
            continue
        errors, plain = [], []
        for repeat in range(repeats if count else 1):
            rng = random.Random(f"{seed}/{count}/{repeat}")
            chosen = set(rng.sample(models, count))
            fit = [rng.choice(by_model[model]) for model in sorted(chosen)]
            test = [p for p in points if p.model not in chosen]
            errors.append(_calibrated_error(fit, test))
            plain.append(_rescaled_error(fit, test))
        spread = statistics.pstdev(errors)
        steps.append(Step(count, statistics.fmean(errors), statistics.fmean(plain), spread))
    return steps


def _percent(test: Sequence[Point], factors: Sequence[float]) -> float:
    """Mean absolute percentage error of corrected predictions."""
    corrected = [p.predicted_s * factor for p, factor in zip(test, factors, strict=True)]
    return 100 * mape([p.measured_s for p in test], corrected)


def _calibrated_error(fit: Sequence[Point], test: Sequence[Point]) -> float:
    if not fit:
        return _rescaled_error(fit, test)
    noise = [MODEL_NOISE] * len(fit)
    found = fit_factors("", [p.features for p in fit], [p.log_ratio for p in fit], noise)
    return _percent(test, [found.factor(p.features) for p in test])


def _rescaled_error(fit: Sequence[Point], test: Sequence[Point]) -> float:
    factor = math.exp(statistics.fmean(p.log_ratio for p in fit)) if fit else 1.0
    return _percent(test, [factor] * len(test))


def mean_curve(curves: Mapping[str, Sequence[Step]]) -> list[Step]:
    """Mean over the devices that have every count, each weighing the same."""
    counts = [set(step.count for step in steps) for steps in curves.values()]
    shared = sorted(set.intersection(*counts)) if counts else []
    found = []
    for count in shared:
        steps = [next(s for s in steps if s.count == count) for steps in curves.values()]
        found.append(
            Step(
                count,
                statistics.fmean(s.calibrated for s in steps),
                statistics.fmean(s.rescaled for s in steps),
                statistics.fmean(s.spread for s in steps),
            )
        )
    return found


def curve_table(steps: Sequence[Mapping[str, Any]]) -> str:
    """The errors in Markdown."""
    columns = {
        "measurements": "{count}",
        "calibrated": "{calibrated:.1f}% ± {spread:.1f}",
        "one factor": "{rescaled:.1f}%",
    }
    return markdown.table(steps, columns)
