"""`prenet evaluate`: how far the predictions are from measured times."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from prenet_gnn.cli._options import Changes, Data, Json, PredictorOptions


@dataclass(frozen=True, slots=True)
class FoldOptions:
    """What is left out of a fresh fit, and how that is trained."""

    fold: Annotated[
        int | None,
        typer.Option(min=0, max=4, help="Fit what ships without this fold and score on it."),
    ] = None
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file for --fold; what ships if not.")
    ] = None
    changes: Changes = None
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = 0
    data: Data = None


def evaluate(
    source: PredictorOptions,
    fresh: FoldOptions,
    records: Annotated[
        Path | None,
        typer.Argument(metavar="[RECORDS]", help="Records of `prenet measure`."),
    ] = None,
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
            data=fresh.data,
            fold=fresh.fold,
            config=fresh.config,
            changes=fresh.changes or [],
            seed=fresh.seed,
        )
    emit(json_text(report.to_dict()) if json else str(report), None)
