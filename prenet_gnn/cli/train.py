"""`prenet train`: fits the network to measured data."""

from pathlib import Path
from typing import Annotated

import typer

from prenet_gnn.cli._options import Changes, Data


def train(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the weights go.")
    ],
    config: Annotated[
        Path | None,
        typer.Argument(metavar="[CONFIG]", help="TOML file; what ships if not."),
    ] = None,
    changes: Changes = None,
    data: Data = None,
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = 0,
) -> None:
    """Trains a predictor on a folder of measurements."""
    from prenet_gnn.training.run import run_training

    run_training(output, config=config, changes=changes or [], data=data, seed=seed)
