"""Makes one of the tracing tables, or all of them, and writes `experiments/results/tracing`.

python -m experiments.tracing_tables coverage
python -m experiments.tracing_tables docs       # the tables of docs/tracing.md and README
"""

from __future__ import annotations

import logging

import torch

from experiments.shared.command import Option, Options, command
from experiments.tracing_tables import STUDIES, study
from experiments.tracing_tables.common import make, run
from experiments.writing import tracing


@command(
    Option("table", choices=(*STUDIES, "all", "docs")),
    Option("--only", nargs="+", default=[], help="just these rows; writes nothing"),
    Option("--again", action="store_true", help="forget the rows of earlier runs"),
    Option("--retry", action="store_true", help="forget their failures"),
    Option("--forget", nargs="+", default=[], help="forget rows that start so"),
)
def main(options: Options) -> None:
    """Runs what the command line names."""
    torch.set_num_threads(1)
    logging.getLogger("tracing").setLevel(logging.ERROR)
    if options.table == "docs":
        tracing.write()
        return
    for name in STUDIES if options.table == "all" else (options.table,):
        chosen = study(name)
        if options.only:
            table = list(make(chosen, options.only))
        else:
            table = run(
                chosen,
                forgotten=lambda row: (
                    options.again
                    or (options.retry and bool(row["error"]))
                    or row["model"].startswith(tuple(options.forget))
                ),
            )
        print("\n".join(chosen.summary(table)))


if __name__ == "__main__":
    main()
