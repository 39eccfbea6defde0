"""Prints one of the tracing tables and writes it to `experiments/results`."""

from __future__ import annotations

import argparse
from collections import Counter

import torch

from experiments.tracing_tables import batch, coverage, flops, saved, speed
from experiments.tracing_tables.common import show, write


def main() -> None:
    """Runs the table that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.tracing_tables", description=__doc__
    )
    parser.add_argument("table", choices=("coverage", "flops", "saved", "batch", "speed"))
    parser.add_argument("--models", nargs="*", help="only these (flops, saved, batch)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.table == "coverage":
        table = list(show(coverage.rows()))
        print("\n".join(coverage.summary(table)))
    elif options.table == "speed":
        table = list(show(speed.rows()))
    else:
        study = {"flops": flops, "saved": saved, "batch": batch}[options.table]
        table = list(show(study.rows(options.models or study.NAMES)))
        print(Counter(row.get("verdict", "") or row.get("error_percent") for row in table))
    if not options.models:
        print(f"written to {write(options.table, table)}")


if __name__ == "__main__":
    main()
