"""The command line of a study: options that many share, and errors as one line."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prenet_gnn.errors import PreNetError

Options = argparse.Namespace


class Option:
    """One option or argument, in the words of `argparse`."""

    def __init__(self, *names: str, **settings: Any) -> None:
        """Remembers what `add_argument` takes."""
        self.names, self.settings = names, settings

    def add_to(self, parser: Any) -> None:
        """Makes the parser know the option."""
        parser.add_argument(*self.names, **self.settings)


class OneOf(Option):
    """Options of which a command takes one at most."""

    def __init__(self, *options: Option) -> None:
        """Remembers the options."""
        self.options = options

    def add_to(self, parser: Any) -> None:
        """Makes the parser know all of them."""
        group = parser.add_mutually_exclusive_group()
        for option in self.options:
            option.add_to(group)


QUICK = Option("--quick", action="store_true", help="a small run, a smoke test; see runs/quick")
WRITE = Option("--write", action="store_true", help="keep the result in results/")
SEED = Option("--seed", type=int, default=0)
SEEDS = Option("--seeds", type=int, default=1, help="runs with seeds counted up from 0")
CONFIG = Option("--config", type=Path, help="settings of the network; default: the shipped")
WEIGHTS = Option("--weights", type=Path, help="folder with weights; default: the shipped")
OUT = Option("--out", type=Path, help="folder of the result files")
FOLDS = range(5)


def command(*options: Option) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Makes a function of parsed options the command of its module.

    The module's docstring is the help text; an error of the package ends the command in one line.
    """

    def wrap(function: Callable[[Options], None]) -> Callable[..., None]:
        text = function.__globals__["__doc__"]

        @functools.wraps(function)
        def main(words: Sequence[str] | None = None) -> None:
            called = function.__globals__["__spec__"].name.removesuffix(".__main__")
            parser = argparse.ArgumentParser(
                prog=f"python -m {called}",
                description=text,
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
            for option in options:
                option.add_to(parser)
            try:
                function(parser.parse_args(words))
            except PreNetError as error:
                raise SystemExit(f"{called.rpartition('.')[2]}: {error}") from None

        return main

    return wrap
