"""`prenet tune`: searches settings of the network."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from prenet_gnn.cli._options import Changes, Data


@dataclasses.dataclass(frozen=True, slots=True)
class TrialOptions:
    """How long a trial takes and what it is judged by."""

    rows: Annotated[int, typer.Option(help="Rows that a trial is fitted to.")] = 3000
    epochs: Annotated[int, typer.Option(help="Epochs of a trial.")] = 6
    fold: Annotated[int, typer.Option(help="Joint fold whose test rows stay out of reach.")] = 1
    with_latency: Annotated[
        bool, typer.Option("--with-latency", help="Also minimise the time of a prediction.")
    ] = False
    pruner: Annotated[str, typer.Option(help="median | hyperband | none")] = "median"


@dataclasses.dataclass(frozen=True, slots=True)
class StudyOptions:
    """Where and how the study runs."""

    trials: Annotated[int, typer.Option(help="Finished trials that the study shall have.")] = 60
    workers: Annotated[int, typer.Option(help="Processes on this machine.")] = 1
    storage: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="sqlite:///FILE or postgresql://USER@HOST/DATABASE; a journal in FOLDER if not.",
        ),
    ] = ""
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0


def tune(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the study goes.")
    ],
    trial: TrialOptions,
    study: StudyOptions,
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG]", help="Settings that are not searched.")
    ] = None,
    changes: Changes = None,
    data: Data = None,
) -> None:
    """Searches settings; the best become FOLDER/best.toml, which `prenet train` reads.

    Start it again to go on. With a database, start it on several machines for one study.
    """
    from prenet_gnn.tuning.proxy import ProxyConfig
    from prenet_gnn.tuning.report import BEST, REPORT
    from prenet_gnn.tuning.run import run_tuning
    from prenet_gnn.tuning.settings import TuneConfig, base_settings

    settings = TuneConfig(
        base=base_settings(config, changes or []),
        proxy=ProxyConfig(
            fold=trial.fold, rows=trial.rows, validation_rows=max(2, trial.rows // 3)
        ),
        epochs=trial.epochs,
        trials=study.trials,
        storage=study.storage,
        pruner=trial.pruner,
        with_latency=trial.with_latency,
        seed=study.seed,
    )
    best = run_tuning(output, settings, workers=study.workers, data=data)
    typer.echo(f"best of the study: trial {best.number}, validation MAPE {best.values[0]:.2%}")
    typer.echo(f"settings: {output / BEST}   report: {output / REPORT}")
