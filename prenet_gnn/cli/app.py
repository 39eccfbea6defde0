"""Which commands there are; a command whose module is not installed is left out."""

import importlib
from importlib.util import find_spec
from typing import Annotated

import typer

from prenet_gnn.common.version import VERSION

# Command module under `prenet_gnn.cli`, and the module that has to be there for it to work.
_COMMANDS = (
    ("trace", "tracing"),
    ("predict", "prenet_gnn.predictor.predictor"),
    ("compare", "prenet_gnn.planning"),
    ("plan", "prenet_gnn.planning"),
    ("hardware", "prenet_gnn.catalogue.devices"),
    ("measure", "prenet_gnn.measuring"),
    ("calibrate", "prenet_gnn.measuring.calibrating"),
    ("check", "prenet_gnn.measuring.checking"),
    ("train", "prenet_gnn.training.run"),
    ("tune", "prenet_gnn.tuning"),
    ("evaluate", "prenet_gnn.evaluation.evaluate"),
    ("data", "prenet_gnn.data"),
)

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


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


for _name, _needed in _COMMANDS:
    if _is_there(_needed) and _is_there(f"prenet_gnn.cli.{_name}"):
        importlib.import_module(f"prenet_gnn.cli.{_name}").register(app)
