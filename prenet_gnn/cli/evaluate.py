"""`prenet evaluate`: how far the predictions are from measured times."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prenet_gnn.cli._options import Data, Json, PredictorOptions, grouped


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(grouped(evaluate))


def evaluate(
    source: PredictorOptions,
    records: Annotated[
        Path | None,
        typer.Argument(metavar="[RECORDS]", help="Records of `prenet measure`; the data if not."),
    ] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Compares predictions with measured times."""
    from prenet_gnn.cli._text import emit, json_text
    from prenet_gnn.evaluation import run_evaluation

    report = run_evaluation(source.load(), records=records, data=data)
    emit(json_text(report.to_dict()) if json else str(report), None)
