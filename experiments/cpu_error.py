"""How far predictions for our own CPU are from its measurements, before and after calibration.

    python -m experiments.cpu_error [--write]

Measured are the whole models of `records/cpu-models.jsonl.gz`, which no network is trained on. The
calibration is fitted to so many measurements of models drawn at random; scored are all others, over
repeats.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from experiments.calibration.curve import REPEATS, curve, curve_table
from experiments.calibration.points import Point, points_of
from experiments.shared import markdown
from experiments.shared.command import WEIGHTS, WRITE, Option, Options, command
from experiments.shared.results import EXPERIMENTS, Result, provenance, write_result
from prenet_gnn.data.record_file import read_records
from prenet_gnn.training.metrics import mape, median_ape

RECORDS = EXPERIMENTS / "records" / "cpu-models.jsonl.gz"


def summary(points: Sequence[Point]) -> dict[str, float]:
    """Errors of uncorrected predictions."""
    true, predicted = [p.measured_s for p in points], [p.predicted_s for p in points]
    return {
        "rows": len(points),
        "models": len({point.model for point in points}),
        "mape": mape(true, predicted),
        "median": median_ape(true, predicted),
        "median_ratio": statistics.median(p.predicted_s / p.measured_s for p in points),
    }


def table(result: Result) -> str:
    """Errors before and after calibration."""
    text = (
        "{rows} measurements of {models} models, uncorrected: mean error {mape:.1%}, median "
        "{median:.1%}, predicted over measured {median_ratio:.2f} at the median."
    )
    return markdown.signed(result, text.format_map(result["before"]), curve_table(result["curve"]))


@command(
    Option("--records", type=Path, default=RECORDS),
    WEIGHTS,
    Option("--limit", type=int, help="take only so many records, drawn at random"),
    Option("--repeats", type=int, default=REPEATS),
    WRITE,
)
def main(options: Options) -> None:
    """Prints the errors and, with --write, keeps them."""
    from prenet_gnn.predictor.loading import load_predictor

    records = [r for r in read_records(options.records) if r.seconds is not None]
    if options.limit is not None and options.limit < len(records):
        records = random.Random(0).sample(records, options.limit)
    points = points_of(records, load_predictor(options.weights))
    steps = curve(points, repeats=options.repeats)
    result = {
        **provenance("python -m experiments.cpu_error", repeats=options.repeats, seed=0),
        "before": summary(points),
        "curve": [asdict(step) for step in steps],
    }
    print(table(result))
    if options.write:
        write_result("cpu_error", result)


if __name__ == "__main__":
    main()
