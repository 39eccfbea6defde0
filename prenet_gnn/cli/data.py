"""`prenet data`: fetches the public measurements, and checks a folder that holds them."""

from pathlib import Path
from typing import Annotated

import typer

from prenet_gnn.cli._options import Data
from prenet_gnn.errors import DataError

SHOWN_PROBLEMS = 20

app = typer.Typer(help="Fetches or checks the measured data.")


@app.command()
def fetch(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to put the files.")],
) -> None:
    """Downloads the sources from where they were published and verifies them."""
    from prenet_gnn.data import fetch_sources

    fetch_sources(folder)


@app.command()
def check(data: Data = None) -> None:
    """Checks the tables of a data folder row by row."""
    from prenet_gnn.data import check_tables, find_data_dir

    folder = find_data_dir(data)
    problems = check_tables(folder)
    for problem in problems[:SHOWN_PROBLEMS]:
        print(problem)
    if len(problems) > SHOWN_PROBLEMS:
        print(f"and {len(problems) - SHOWN_PROBLEMS} more")
    if problems:
        raise DataError(f"{len(problems)} problems in {folder}.")
    print(f"{folder}: no problems")


@app.command()
def cache(
    data: Data = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that trace.")] = 2,
) -> None:
    """Traces every model of the measured rows into the cache; goes on where it was stopped."""
    from prenet_gnn.data import cache_measurements

    report = cache_measurements(data, workers=workers, progress=True)
    print(f"{report.requested} graphs: {report.present} there, {report.traced} traced now")
    for key, reason in sorted(report.failed.items()):
        print(f"{key.stem}: {reason}")
