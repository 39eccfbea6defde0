"""Which settings of the network are best, and does the small sample of the search rank them right?

    python -m experiments.tuning --folder runs/tuning [--trials 60] [--workers 1] [--quick]

Runs the study of `prenet tune` on top of the shipped settings, then fits some of its settings, from
the best to the worst, to a larger sample of the same fold and compares the two rankings. Writes
`results/tuning.csv` (all trials), `tuning-agreement.csv`, `tuning.json` and `tuning.png`; the best
settings are `FOLDER/best.toml`. Goes on where it was stopped.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.shared import markdown
from experiments.shared.command import CONFIG, OUT, QUICK, SEED, Option, Options, command
from experiments.shared.ledger import Ledger
from experiments.shared.plots import bars
from experiments.shared.results import Result, folder_of, provenance, write_result
from prenet_gnn.training.config import RunConfig
from prenet_gnn.training.metrics import spearman
from prenet_gnn.tuning.objective import fit_proxy, proxy_scores
from prenet_gnn.tuning.proxy import ProxyConfig, prepare_proxy, read_proxy
from prenet_gnn.tuning.report import TRIALS, importances
from prenet_gnn.tuning.run import run_tuning
from prenet_gnn.tuning.settings import TuneConfig, base_settings
from prenet_gnn.tuning.space import nested
from prenet_gnn.tuning.storage import open_study, storage_address
from prenet_gnn.tuning.trials import finished

RANKING = "ranking on twice the rows and epochs"
# Settings that the table shows: those whose share of the variance is largest.
SHOWN_SETTINGS = 4


def spread_out(trials: list[Any], count: int) -> list[Any]:
    """Complete trials from the best to the worst, at equal steps of rank."""
    complete = sorted((t for t in trials if t.state.name == "COMPLETE"), key=lambda t: t.values[0])
    places = np.unique(np.linspace(0, len(complete) - 1, count).round().astype(int))
    return [complete[i] for i in places]


@dataclass(frozen=True, slots=True)
class Check:
    """How trials are fitted once more: the sample and its folder, other settings, epochs."""

    folder: Path
    base: dict[str, Any]
    sample: ProxyConfig
    epochs: int


def agreement(check: Check, trials: list[Any], ledger: Ledger) -> dict[str, Any]:
    """Fits trials to a larger sample and correlates the ranks."""
    prepare_proxy(check.folder, check.sample)
    proxy = read_proxy(check.folder)
    for trial in trials:
        key = {"trial": trial.number, "rows": check.sample.rows, "epochs": check.epochs}
        if ledger.has(**key):
            continue
        config = RunConfig.from_dict(nested(trial.params, check.base))
        scores = proxy_scores(fit_proxy(proxy, config, check.epochs), proxy)
        ledger.add({**key, "small_mape": trial.values[0], "large_mape": scores["mean"]})
        print(f"trial {trial.number}: {trial.values[0]:.1%} -> {scores['mean']:.1%}", flush=True)
    found = pd.DataFrame(ledger.rows)
    rank = spearman(found["small_mape"], found["large_mape"])
    return {"settings": len(found), "spearman": None if rank != rank else round(rank, 3)}


def table(result: Result) -> str:
    """The best settings, what decides, and whether the small sample ranks as a larger one does."""
    best, agreed = result["best"], result[RANKING]
    shares = sorted(result["importances"].items(), key=lambda item: -item[1])[:SHOWN_SETTINGS]
    lines = [(f"`{name}`", f"{share:.0%}", _value(best.get(name))) for name, share in shares]
    rank = "not known" if agreed["spearman"] is None else f"{agreed['spearman']:.2f}"
    trials = ", ".join(f"{count} {state}" for state, count in result["trials"].items())
    text = (
        f"{trials}. Best: trial {best['trial']} with a validation error of "
        f"{best['validation_mape']:.1%}. Rank correlation with fits to twice the rows and epochs, "
        f"over {agreed['settings']} settings from the best to the worst: {rank}."
    )
    head = ("setting", "share of the variance (fANOVA)", "in the best trial")
    return markdown.signed(result, text, markdown.grid(head, lines))


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


@command(
    Option("--folder", type=Path, required=True, help="the study and its samples"),
    CONFIG,
    Option("--trials", type=int, default=60),
    Option("--workers", type=int, default=1),
    Option("--storage", default=""),
    Option("--rows", type=int, default=3000),
    Option("--epochs", type=int, default=6),
    Option("--checked", type=int, default=6, help="settings fitted to more rows"),
    SEED,
    QUICK,
    OUT,
)
def main(options: Options) -> None:
    """Searches, checks the ranking and writes what was found."""
    rows, epochs = (200, 1) if options.quick else (options.rows, options.epochs)
    out = options.out or folder_of(options.quick)
    base = base_settings(options.config)
    config = TuneConfig(
        base=base,
        proxy=ProxyConfig(rows=rows, validation_rows=rows // 3),
        epochs=epochs,
        trials=3 if options.quick else options.trials,
        storage=options.storage,
        seed=options.seed,
    )
    best = run_tuning(options.folder, config, workers=options.workers)
    study = open_study(storage_address(config.storage, options.folder), config.directions)
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(options.folder / TRIALS, out / "tuning.csv")
    large = ProxyConfig(rows=2 * rows, validation_rows=rows)
    chosen = spread_out(finished(study), options.checked)
    ledger = Ledger(out / "tuning-agreement.csv")
    agreed = agreement(Check(options.folder / "large", base, large, 2 * epochs), chosen, ledger)
    weights = importances(study)
    states = [t.state.name.lower() for t in finished(study)]
    result = {
        "trials": {name: states.count(name) for name in sorted(set(states))},
        "best": {"trial": best.number, "validation_mape": best.values[0], **best.params},
        "importances": {name: round(value, 4) for name, value in weights.items()},
        RANKING: agreed,
        "settings": {"rows": rows, "epochs": epochs, "seed": options.seed, "base": base},
        **provenance(),
    }
    write_result("tuning", result, out)
    if weights:
        bars(
            out / "tuning.png", list(weights), {"importance": list(weights.values())},
            title=f"What decides the validation error ({len(states)} trials, fANOVA)",
            unit="share of the variance",
        )  # fmt: skip
    print(table(result))


if __name__ == "__main__":
    main()
