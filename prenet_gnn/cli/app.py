"""Which commands there are."""

from typing import Annotated

import typer

from prenet_gnn.cli import data
from prenet_gnn.cli._grouped import grouped
from prenet_gnn.cli.calibrate import calibrate
from prenet_gnn.cli.check import check
from prenet_gnn.cli.compare import compare
from prenet_gnn.cli.evaluate import evaluate
from prenet_gnn.cli.hardware import hardware
from prenet_gnn.cli.measure import measure
from prenet_gnn.cli.plan import plan
from prenet_gnn.cli.predict import predict
from prenet_gnn.cli.trace import trace
from prenet_gnn.cli.train import train
from prenet_gnn.cli.tune import tune
from prenet_gnn.common.version import VERSION

app = typer.Typer(
    name="prenet",
    help="Predicts training time, memory and cost of PyTorch models on any accelerator.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # The plain help loads in half the time of the framed one.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"prenet-gnn {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error came from; any position.")
    ] = False,
) -> None:
    # `--debug` is taken out of the words by `prenet_gnn.cli.main`; here it is only documented.
    pass


for _command in (
    trace, predict, compare, plan, hardware, measure, calibrate, check, train, tune, evaluate,
):  # fmt: skip
    app.command()(grouped(_command))
app.add_typer(data.app, name="data", no_args_is_help=True)
