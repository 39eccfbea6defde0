"""Which parts of the network and of its input matter?

    python -m experiments.ablations --folder runs/ablations [--seeds 3] [--folds 1] [--quick]

A table of named changes, each fitted on the same sample of rows with the same seeds and judged on
families and devices that were not in it (`prenet_gnn.tuning.proxy`; never on the test groups of the
joint fold). `results/ablations.csv` holds one line per change, fold and seed, `ablations.json` the
means, spreads and significance, `ablations.png` the plot. Goes on where it was stopped.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.ablation.rows import changed_rows
from experiments.ablation.variants import FULL, QUICK_VARIANTS, VARIANTS
from experiments.shared import markdown
from experiments.shared.averages import grouped
from experiments.shared.command import CONFIG, OUT, QUICK, Option, Options, command
from experiments.shared.ledger import Ledger, Row
from experiments.shared.networks import operators_of
from experiments.shared.plots import bars
from experiments.shared.results import Result, folder_of, provenance, write_result
from prenet_gnn.data.families import families
from prenet_gnn.data.splits import chip_name
from prenet_gnn.training.config import RunConfig
from prenet_gnn.training.fit import predict_rows
from prenet_gnn.training.rows import Rows
from prenet_gnn.tuning.objective import fit_proxy
from prenet_gnn.tuning.proxy import PART, VALIDATED, Proxy, ProxyConfig, prepare_proxy, read_proxy
from prenet_gnn.tuning.settings import base_settings
from prenet_gnn.tuning.space import nested

SCORES = (*VALIDATED, "mean")
EPOCHS = 10
RESAMPLES = 2000
# Groups of rows (a family or a device) with fewer rows are no group to compare.
FEWEST_ROWS = 5


def known_operators(proxy: Proxy) -> Rows:
    """Operators that were timed alone on chips that the sample is fitted to."""
    seen = {chip_name(str(gpu)) for gpu in proxy.rows.frame["gpu"].to_numpy()[proxy.train]}
    return operators_of(lambda device: chip_name(device) in seen)


def run_one(
    proxy: Proxy, base: dict[str, Any], name: str, seed: int, epochs: int
) -> tuple[dict[str, float], np.ndarray]:
    """Fits one change with one seed; gives its scores and the error of every validation row."""
    variant = VARIANTS[name]
    config = RunConfig.from_dict(nested({**variant.settings, "train.seed": seed}, base))
    changed = Proxy(changed_rows(proxy.rows, variant.rows), proxy.train, proxy.validation)
    started = time.perf_counter()
    operators = known_operators(proxy) if variant.operators else None
    fitted = fit_proxy(changed, config, epochs, operators=operators)
    seconds = time.perf_counter() - started
    predicted = predict_rows(fitted, changed.rows, changed.validation)
    errors = np.abs(predicted / proxy.rows.seconds[proxy.validation] - 1)
    part = proxy.rows.frame[PART].to_numpy()[proxy.validation]
    scores = {kind: float(errors[part == kind].mean()) for kind in VALIDATED}
    return {**scores, "mean": float(np.mean(list(scores.values()))), "fit_s": seconds}, errors


def groups_of(proxy: Proxy) -> np.ndarray:
    """The family of rows of unseen families, the device of rows of unseen devices."""
    frame = proxy.rows.frame.iloc[proxy.validation]
    unseen_family = (frame[PART] == VALIDATED[0]).to_numpy()
    return np.where(unseen_family, families(frame).to_numpy(), frame["gpu"].to_numpy()).astype(str)


def significance(differences: np.ndarray, seed: int = 0) -> dict[str, float]:
    """Mean of paired differences by group, its 95% interval, and the p-value of a sign-flip test.

    Args:
        differences: Error with the change minus error without it, one per group of rows.
        seed: Of the random signs and samples.
    """
    rng = np.random.default_rng(seed)
    mean = float(differences.mean())
    signs = rng.choice((-1.0, 1.0), (RESAMPLES, len(differences)))
    flipped = np.abs((signs * differences).mean(axis=1))
    drawn = differences[rng.integers(0, len(differences), (RESAMPLES, len(differences)))]
    low, high = np.quantile(drawn.mean(axis=1), (0.025, 0.975))
    p = (1 + np.sum(flipped >= abs(mean) - 1e-12)) / (RESAMPLES + 1)
    return {"difference": mean, "low": float(low), "high": float(high), "p_value": float(p)}


def _errors_file(folder: Path, name: str, fold: int, seed: int) -> Path:
    plain = "".join(c if c.isalnum() else "_" for c in name)
    return folder / f"errors-{plain}-{fold}-{seed}.npy"


def summary(ledger: Ledger, folder: Path) -> list[dict[str, Any]]:
    """Mean and spread over folds and seeds of every change, and its difference from the full."""
    found = []
    for name, runs in grouped(ledger.rows, lambda row: row["change"]).items():
        part = pd.DataFrame(runs)
        spread = round(float(part["mean"].std()), 4) if len(part) > 1 else 0.0
        means = part[[*SCORES]].mean().round(4).to_dict()
        line = {"change": name, "runs": len(part), **means, "spread": spread}
        differences = _differences(runs, folder)
        if name != FULL and len(differences):
            line |= {k: round(v, 4) for k, v in significance(differences).items()}
            line["groups"] = len(differences)
        found.append(line)
    return found


def _differences(runs: list[Row], folder: Path) -> np.ndarray:
    """Mean change of the error in each group of rows, over folds and seeds."""
    collected: dict[str, list[float]] = {}
    for run in runs:
        fold = run["fold"]
        files = [_errors_file(folder, name, fold, run["seed"]) for name in (run["change"], FULL)]
        if not all(path.exists() for path in files):
            continue
        with_change, without = (np.load(path, allow_pickle=False) for path in files)
        groups = np.load(folder / f"groups-{fold}.npy", allow_pickle=False)
        for group in np.unique(groups):
            chosen = groups == group
            if chosen.sum() >= FEWEST_ROWS:
                difference = float((with_change - without)[chosen].mean())
                collected.setdefault(f"{fold}/{group}", []).append(difference)
    return np.array([np.mean(values) for values in collected.values()])


def table(result: Result) -> str:
    """What the error on unseen groups is without single parts of the network or its input."""
    columns = {
        "change": "{change}",
        "unseen architecture": "{unseen-architecture:.1%}",
        "unseen device": "{unseen-device:.1%}",
        "mean and spread over seeds": "{mean:.1%} ± {spread:.1%}",
        "difference by group": lambda row: (
            f"{row['difference']:+.1%}, p = {row['p_value']:.2f}" if "p_value" in row else ""
        ),
    }
    size = "{rows} rows, {epochs} epochs a run".format_map(result["settings"])
    size += f", {result['changes'][0]['runs']} runs each"
    command = "`python -m experiments.ablations`"
    text = f"{command}, {size}, commit {result['commit']}."
    return f"{markdown.table(result['changes'], columns)}\n\n{text}"


@command(
    Option("--folder", type=Path, required=True, help="samples and errors by row"),
    CONFIG,
    Option("--seeds", type=int, default=3),
    Option("--folds", type=int, nargs="+", default=[1]),
    Option("--rows", type=int, default=3000),
    Option("--epochs", type=int, default=EPOCHS),
    Option("--only", nargs="+", choices=VARIANTS, help="these changes and 'full'"),
    QUICK,
    OUT,
)
def main(options: Options) -> None:
    """Fits every variant and compares it with the full network."""
    names = options.only or (QUICK_VARIANTS if options.quick else VARIANTS)
    names = (FULL, *(name for name in names if name != FULL))
    rows, epochs = (200, 1) if options.quick else (options.rows, options.epochs)
    out = options.out or folder_of(options.quick)
    ledger = Ledger(out / "ablations.csv")
    base = base_settings(options.config)
    runs = [(n, f, s) for s in range(options.seeds) for f in options.folds for n in names]
    proxies: dict[int, Proxy] = {}
    for name, fold, seed in runs:
        if ledger.has(change=name, fold=fold, seed=seed):
            continue
        if fold not in proxies:
            sample = options.folder / f"fold{fold}-rows{rows}"
            prepare_proxy(sample, ProxyConfig(fold=fold, rows=rows, validation_rows=rows // 2))
            proxies[fold] = read_proxy(sample)
            np.save(options.folder / f"groups-{fold}.npy", groups_of(proxies[fold]))
        scores, errors = run_one(proxies[fold], base, name, seed, epochs)
        np.save(_errors_file(options.folder, name, fold, seed), errors)
        ledger.add({"change": name, "fold": fold, "seed": seed, **scores})
        print(f"{name:<36} fold {fold} seed {seed}: {scores['mean']:.1%}"
              f" in {scores['fit_s']:.0f} s", flush=True)  # fmt: skip
    lines = summary(ledger, options.folder)
    settings = {"rows": rows, "epochs": epochs, "base": base}
    result = {"changes": lines, "settings": settings, **provenance()}
    print(table(result))
    write_result("ablations", result, out)
    bars(
        out / "ablations.png",
        [line["change"] for line in lines],
        {kind: [line[kind] for line in lines] for kind in SCORES},
        spreads={"mean": [line["spread"] for line in lines]},
        title="Validation MAPE by change (bars of the mean: standard deviation)",
        unit="MAPE",
        logarithmic=True,
    )


if __name__ == "__main__":
    main()
