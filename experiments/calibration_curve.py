"""How the error on a new device falls with 1, 3, 10, 30 measurements, against plain rescaling.

    python -m experiments.calibration_curve --fold 1 --weights FOLDER [--write]
    python -m experiments.calibration_curve RECORDS [--weights FOLDER]

With --fold, each device that the fold holds out is in turn pretended to be new; the weights must
have been trained without them (`python -m experiments.accuracy --fold 1` keeps its network beside
its result). RECORDS is a file of `prenet measure` instead. Points are drawn at random for the fit,
by model, and all models that were not drawn are predicted.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from experiments.calibration.curve import REPEATS, Step, curve, curve_table, mean_curve
from experiments.calibration.points import Point, held_out_points, points_of
from experiments.shared import markdown
from experiments.shared.command import FOLDS, SEED, WEIGHTS, WRITE, Option, Options, command
from experiments.shared.results import Result, provenance, write_result
from prenet_gnn.data.record_file import read_records

# A device with fewer models says little about a curve.
FEWEST_MODELS = 12


def table(result: Result) -> str:
    """Errors on held-out devices before and after calibration."""
    return markdown.signed(result, curve_table(result["mean"]))


def _points(options: Options) -> dict[str, list[Point]]:
    if options.records is None:
        return held_out_points(options.weights, options.fold)
    from prenet_gnn.predictor.loading import load_predictor

    predictor = load_predictor(options.weights)
    return {str(options.records): points_of(read_records(options.records), predictor)}


@command(
    Option("records", type=Path, nargs="?", help=".jsonl or .jsonl.gz of one device"),
    WEIGHTS,
    Option("--fold", type=int, choices=FOLDS, help="use the devices it holds out"),
    Option("--repeats", type=int, default=REPEATS, help="random draws per count"),
    SEED,
    WRITE,
)
def main(options: Options) -> None:
    """Prints the curves as tables."""
    if (options.records is None) == (options.fold is None):
        raise SystemExit("calibration_curve: give either RECORDS or --fold")
    if options.fold is not None and options.weights is None:
        raise SystemExit(
            "calibration_curve: --fold needs --weights: the shipped weights have seen most devices"
        )
    curves: dict[str, list[Step]] = {}
    sizes: dict[str, dict[str, int]] = {}
    for device, found in sorted(_points(options).items()):
        models = len({point.model for point in found})
        sizes[device] = {"rows": len(found), "models": models}
        print(f"\n{device}: {len(found)} points of {models} models")
        if models >= FEWEST_MODELS:
            curves[device] = curve(found, repeats=options.repeats, seed=options.seed)
            print(curve_table([asdict(step) for step in curves[device]]))
    settings = {"fold": options.fold, "seed": options.seed, "repeats": options.repeats}
    place = "RECORDS" if options.fold is None else f"--fold {options.fold} --weights FOLDER"
    result = {
        **provenance(f"python -m experiments.calibration_curve {place}", **settings),
        "sizes": sizes,
        "mean": [asdict(step) for step in mean_curve(curves)],
        "devices": {name: [asdict(step) for step in steps] for name, steps in curves.items()},
    }
    print(f"\nmean of {len(curves)} devices\n{table(result)}")
    if options.write:
        name = "calibration" if options.fold is None else f"calibration-fold{options.fold}"
        write_result(name, result)


if __name__ == "__main__":
    main()
