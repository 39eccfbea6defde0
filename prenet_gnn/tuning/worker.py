"""One process of a study: `python -m prenet_gnn.tuning.worker FOLDER NUMBER`."""

from __future__ import annotations

import sys
from pathlib import Path

from prenet_gnn.errors import PreNetError
from prenet_gnn.tuning.objective import make_objective
from prenet_gnn.tuning.proxy import read_proxy
from prenet_gnn.tuning.settings import TuneConfig, make_pruner
from prenet_gnn.tuning.storage import open_study, storage_address
from prenet_gnn.tuning.trials import run_trials

PROXY = "proxy"


def main(folder: Path, number: int) -> int:
    """Runs trials until the study has as many as it shall have."""
    import torch

    torch.set_num_threads(1)
    config = TuneConfig.load(folder)
    try:
        study = open_study(storage_address(config.storage, folder), config.directions)
        study.pruner = make_pruner(config)
        proxy = read_proxy(folder / PROXY)
        objective = make_objective(
            proxy, config.base, config.epochs, with_latency=config.with_latency
        )
        run_trials(study, objective, config.trials, seed=config.seed, worker=number)
    except PreNetError as error:
        print(f"prenet tune: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
