"""`prenet calibrate`: fits the predictor to measurements of one machine."""

from pathlib import Path
from typing import Annotated

import typer

from prenet_gnn.cli._options import PredictorOptions


def calibrate(
    source: PredictorOptions,
    records: Annotated[
        Path, typer.Argument(metavar="RECORDS", help="File that `prenet measure -o` wrote.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where the corrections go.")
    ],
) -> None:
    """Fits corrections to your own measurements.

    `prenet predict --calibration FILE` uses them.
    """
    from prenet_gnn.measuring import read_records
    from prenet_gnn.measuring.calibrating import fit_calibration

    calibration = fit_calibration(read_records(records), source.load())
    calibration.save(output)
    print(calibration)
