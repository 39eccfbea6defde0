"""Which settings of the network are best, and does the small sample of the search rank them right?

    python -m experiments.tuning --folder runs/tuning [--trials 60] [--workers 1] [--quick]

Runs the study of `prenet tune` on top of the shipped settings, then fits some of its settings, from
the best to the worst, to a larger sample of the same fold and compares the two rankings. Writes
`results/tuning.csv` (all trials), `tuning-agreement.csv`, `tuning.json` and `tuning.png`; the best
settings are `FOLDER/best.toml`. Goes on where it was stopped.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.studies import RESULTS, Ledger, bars, facts, write_json
from prenet_gnn.training.config import SHIPPED, RunConfig
from prenet_gnn.training.metrics import spearman
from prenet_gnn.tuning.objective import fit_proxy, proxy_scores
from prenet_gnn.tuning.proxy import ProxyConfig, prepare_proxy, read_proxy
from prenet_gnn.tuning.report import TRIALS, importances
from prenet_gnn.tuning.run import run_tuning
from prenet_gnn.tuning.settings import TuneConfig, base_settings
from prenet_gnn.tuning.space import nested
from prenet_gnn.tuning.storage import open_study, storage_address
from prenet_gnn.tuning.trials import finished

KEYS, COLUMNS = ("trial", "rows", "epochs"), ("small_mape", "large_mape", "fit_s")


def spread_out(trials: list[Any], count: int) -> list[Any]:
    """Complete trials from the best to the worst, at equal steps of rank."""
    complete = sorted((t for t in trials if t.state.name == "COMPLETE"), key=lambda t: t.values[0])
    places = np.unique(np.linspace(0, len(complete) - 1, count).round().astype(int))
    return [complete[i] for i in places]


def agreement(
    folder: Path, trials: list[Any], base: dict[str, Any], large: ProxyConfig, epochs: int,
    ledger: Ledger,
) -> dict[str, Any]:  # fmt: skip
    """Fits trials to a larger sample and correlates the ranks."""
    prepare_proxy(folder / "large", large)
    proxy = read_proxy(folder / "large")
    for trial in trials:
        key = {"trial": trial.number, "rows": large.rows, "epochs": epochs}
        if ledger.has(**key):
            continue
        fitted = fit_proxy(proxy, RunConfig.from_dict(nested(trial.params, base)), epochs)
        scores = proxy_scores(fitted, proxy)
        ledger.add({**key, "small_mape": trial.values[0], "large_mape": scores["mean"]})
        print(f"trial {trial.number}: {trial.values[0]:.1%} -> {scores['mean']:.1%}", flush=True)
    table = pd.DataFrame(ledger.rows).astype({"small_mape": float, "large_mape": float})
    rank = spearman(table["small_mape"], table["large_mape"])
    return {"settings": len(table), "spearman": None if rank != rank else round(rank, 3)}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="the study and its samples")
    parser.add_argument("--config", type=Path, default=SHIPPED)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--storage", default="")
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--checked", type=int, default=6, help="settings fitted to more rows")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="three short trials, a smoke test")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result files")
    args = parser.parse_args()
    trials, rows, epochs = (3, 200, 1) if args.quick else (args.trials, args.rows, args.epochs)
    suffix = "-quick" if args.quick else ""
    base = base_settings(args.config)
    config = TuneConfig(
        base=base,
        proxy=ProxyConfig(rows=rows, validation_rows=rows // 3),
        epochs=epochs,
        trials=trials,
        storage=args.storage,
        seed=args.seed,
    )
    best = run_tuning(args.folder, config, workers=args.workers)
    study = open_study(storage_address(config.storage, args.folder), config.directions)
    args.out.mkdir(parents=True, exist_ok=True)
    table = (args.folder / TRIALS).read_text(encoding="utf-8")
    (args.out / f"tuning{suffix}.csv").write_text(table, encoding="utf-8")
    ledger = Ledger(args.out / f"tuning-agreement{suffix}.csv", KEYS, COLUMNS)
    large = ProxyConfig(rows=2 * rows, validation_rows=rows)
    chosen = spread_out(finished(study), args.checked)
    agreed = agreement(args.folder, chosen, base, large, 2 * epochs, ledger)
    weights = importances(study)
    states = [t.state.name.lower() for t in finished(study)]
    result = {
        "trials": {name: states.count(name) for name in sorted(set(states))},
        "best": {"trial": best.number, "validation_mape": best.values[0], **best.params},
        "importances": {name: round(value, 4) for name, value in weights.items()},
        "ranking on twice the rows and epochs": agreed,
        "settings": {"rows": rows, "epochs": epochs, "seed": args.seed, "base": base},
        **facts(),
    }
    write_json(args.out / f"tuning{suffix}.json", result)
    if weights:
        bars(
            args.out / f"tuning{suffix}.png", list(weights), {"importance": list(weights.values())},
            title=f"What decides the validation error ({len(states)} trials, fANOVA)",
            unit="share of the variance",
        )  # fmt: skip
    print(result["best"], agreed)


if __name__ == "__main__":
    main()
