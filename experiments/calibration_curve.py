"""How the error on a new device falls with 1, 3, 10, 30 measurements, against plain rescaling.

    python -m experiments.calibration_curve --fold 1 --weights FOLDER [--write]
    python -m experiments.calibration_curve RECORDS [--weights FOLDER]

With --fold, each device that the fold holds out is in turn pretended to be new; the weights must
have been trained without them (`python -m experiments.accuracy --fold 1` keeps its network beside
its result). RECORDS is a file of `prenet measure` instead. Points are drawn at random for the fit,
by model, and all models that were not drawn are predicted.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from experiments.calibration_points import Point, held_out_points, points_of
from experiments.provenance import provenance, write_result
from prenet_gnn.data.records import read_records
from prenet_gnn.errors import PreNetError
from prenet_gnn.measuring.calibrating import MODEL_NOISE, fit_factors

COUNTS = (0, 1, 3, 10, 30)
REPEATS = 50
# A device with fewer models says little about a curve.
FEWEST_MODELS = 12


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
    by_model: dict[str, list[Point]] = {}
    for point in points:
        by_model.setdefault(point.model, []).append(point)
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


def show(title: str, steps: Sequence[Step]) -> None:
    """Prints a curve as a table."""
    print(f"\n{title}\n\n| measurements | calibrated | one factor |\n|---|---|---|")
    for step in steps:
        calibrated = f"{step.calibrated:.1f}% ± {step.spread:.1f}"
        print(f"| {step.count} | {calibrated} | {step.rescaled:.1f}% |")


def _points(arguments: argparse.Namespace) -> dict[str, list[Point]]:
    if arguments.records is not None:
        from prenet_gnn.predictor.loading import load_predictor

        predictor = load_predictor(arguments.weights)
        return {str(arguments.records): points_of(read_records(arguments.records), predictor)}
    return held_out_points(arguments.weights, arguments.fold)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the curves as tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("records", type=Path, nargs="?", help=".jsonl or .jsonl.gz of one device")
    parser.add_argument("--weights", type=Path, help="folder with weights; default: the shipped")
    parser.add_argument("--fold", type=int, choices=range(5), help="use the devices it holds out")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="random draws per count")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="keep the curves in results/")
    arguments = parser.parse_args(argv)
    if (arguments.records is None) == (arguments.fold is None):
        parser.error("give either RECORDS or --fold")
    if arguments.fold is not None and arguments.weights is None:
        parser.error("--fold needs --weights: the shipped weights have seen most devices")
    try:
        points = _points(arguments)
    except PreNetError as error:
        print(f"calibration_curve: {error}", file=sys.stderr)
        return 1
    curves: dict[str, list[Step]] = {}
    sizes: dict[str, dict[str, int]] = {}
    for device, found in sorted(points.items()):
        models = len({point.model for point in found})
        sizes[device] = {"rows": len(found), "models": models}
        if models >= FEWEST_MODELS:
            curves[device] = curve(found, repeats=arguments.repeats, seed=arguments.seed)
            show(f"{device}: {len(found)} points of {models} models", curves[device])
        else:
            print(f"\n{device}: only {models} models, left out")
    mean = mean_curve(curves)
    if len(curves) > 1:
        show(f"mean of {len(curves)} devices", mean)
    if arguments.write:
        name = "calibration" if arguments.fold is None else f"calibration-fold{arguments.fold}"
        facts = provenance(
            f"python -m experiments.calibration_curve --fold {arguments.fold} --weights FOLDER",
            fold=arguments.fold,
            seed=arguments.seed,
            repeats=arguments.repeats,
        )
        tables = {device: [asdict(step) for step in steps] for device, steps in curves.items()}
        mean_rows = [asdict(step) for step in mean]
        write_result(name, {**facts, "sizes": sizes, "mean": mean_rows, "devices": tables})
    return 0


if __name__ == "__main__":
    sys.exit(main())
