"""Writes the tables of README and of docs/ from the result files.

    python -m experiments.tables            # README's table and example, tables of docs/
    python -m experiments.tables --print    # only print the tables

A table without a place in its page is printed only, and said.
"""

from __future__ import annotations

from experiments import readme
from experiments.shared.command import Option, Options, command
from experiments.shared.markdown import DOCS, README
from experiments.writing import accuracy
from experiments.writing.pages import put, study_tables


@command(Option("--print", action="store_true", help="change no file"))
def main(options: Options) -> None:
    """Prints every table and puts it into its page."""
    results = accuracy.load_results()
    if not results:
        raise SystemExit("no results: run `python -m experiments.accuracy --fold 1` first")
    tables = [
        ("accuracy", README, accuracy.accuracy(results)),
        ("transfer", DOCS / "accuracy.md", accuracy.transfer()),
        ("held-out-devices", DOCS / "limits.md", accuracy.held_out_devices(results)),
        ("worst", DOCS / "limits.md", accuracy.worst(results)),
        *study_tables(),
    ]
    print("\n\n".join(text for *_, text in tables if text))
    if not options.print:
        for table in tables:
            put(*table)
        readme.main([])


if __name__ == "__main__":
    main()
