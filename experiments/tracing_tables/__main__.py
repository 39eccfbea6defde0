"""Makes one of the tracing tables, or all of them, and writes `experiments/results/tracing`."""

from __future__ import annotations

import argparse
import logging

import torch

from experiments.tracing_tables import STUDIES, study
from experiments.tracing_tables.common import forget, run


def main() -> None:
    """Runs what the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.tracing_tables", description=__doc__
    )
    parser.add_argument("table", choices=(*STUDIES, "all", "docs"))
    parser.add_argument("--only", nargs="+", default=[], help="just these rows; writes nothing")
    parser.add_argument("--again", action="store_true", help="forget the rows of earlier runs")
    parser.add_argument("--retry", action="store_true", help="forget their failures")
    parser.add_argument("--forget", nargs="+", default=[], help="forget rows that start so")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("tracing").setLevel(logging.ERROR)
    if options.table == "docs":
        from experiments.tracing_tables import docs

        print(f"written to {docs.write()}")
        return
    for name in STUDIES if options.table == "all" else (options.table,):
        chosen = study(name)
        forget(name, options.forget)
        table = run(chosen, options.only, again=options.again, retry=options.retry)
        print("\n".join(chosen.summary(table)))


if __name__ == "__main__":
    main()
