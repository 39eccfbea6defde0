"""How far predictions for our own CPU are from its measurements, before and after calibration.

    python -m experiments.cpu_error [--write]

Measured are the whole models of `records/cpu-models.jsonl.gz`, which no network is trained on. The
calibration is fitted to so many measurements of models drawn at random; scored are all others, over
repeats.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from experiments.calibration_curve import REPEATS, curve, show
from experiments.calibration_points import Point, points_of
from experiments.provenance import provenance, write_result
from prenet_gnn.data.records import read_records
from prenet_gnn.errors import PreNetError

RECORDS = Path(__file__).parent / "records" / "cpu-models.jsonl.gz"


def summary(points: Sequence[Point]) -> dict[str, float]:
    """Errors of uncorrected predictions."""
    ratios = [point.predicted_s / point.measured_s for point in points]
    errors = [abs(ratio - 1) for ratio in ratios]
    return {
        "rows": len(points),
        "models": len({point.model for point in points}),
        "mape": statistics.fmean(errors),
        "median": statistics.median(errors),
        "median_ratio": statistics.median(ratios),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the errors and, with --write, keeps them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--weights", type=Path, help="folder with weights; default: the shipped")
    parser.add_argument("--limit", type=int, help="take only so many records, drawn at random")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--write", action="store_true", help="keep the result")
    arguments = parser.parse_args(argv)
    from prenet_gnn.predictor.loading import load_predictor

    try:
        records = [r for r in read_records(arguments.records) if r.seconds is not None]
        if arguments.limit is not None and arguments.limit < len(records):
            records = random.Random(0).sample(records, arguments.limit)
        points = points_of(records, load_predictor(arguments.weights))
    except PreNetError as error:
        print(f"cpu_error: {error}", file=sys.stderr)
        return 1
    before = summary(points)
    print(", ".join(f"{name} {value:.3g}" for name, value in before.items()))
    steps = curve(points, repeats=arguments.repeats)
    show("mean absolute percentage error by number of measurements", steps)
    if arguments.write:
        facts = provenance("python -m experiments.cpu_error", repeats=arguments.repeats, seed=0)
        write_result("cpu_error", {**facts, "before": before, "curve": [asdict(s) for s in steps]})
    return 0


if __name__ == "__main__":
    sys.exit(main())
