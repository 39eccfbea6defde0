"""`prenet evaluate`: how far the predictions are from measured times."""

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
        typer.Argument(metavar="[RECORDS]", help="Records of `prenet measure`."),
    ] = None,
    fold: Annotated[
        int | None,
        typer.Option(min=0, max=4, help="Train without this fold of the data and score on it."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Training settings for --fold, as TOML.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one setting; repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = 0,
    data: Data = None,
    json: Json = False,
) -> None:
    """Shows how far predictions are from measured times.

    Without arguments: the scores that the weights got on rows held out from their training.
    """
    from prenet_gnn.cli._text import emit, json_text

    predictor = source.load()
    if records is not None:
        from prenet_gnn.measuring.scoring import score_records

        report = score_records(predictor, records)
    else:
        from prenet_gnn.evaluation.evaluate import run_evaluation

        report = run_evaluation(
            predictor,
            data=data,
            fold=fold,
            config=config,
            changes=changes or [],
            seed=seed,
        )
    emit(json_text(report.to_dict()) if json else str(report), None)
