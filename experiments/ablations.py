"""Which parts of the network and of its input matter?

    python -m experiments.ablations --folder runs/ablations [--seeds 3] [--folds 1] [--quick]

A table of named changes, each fitted on the same sample of rows with the same seeds and judged on
families and devices that were not in it (`prenet_gnn.tuning.proxy`; never on the test groups of the
joint fold). `results/ablations.csv` holds one line per change, fold and seed, `ablations.json` the
means, spreads and significance, `ablations.png` the plot. Goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.ablation_rows import changed_rows
from experiments.studies import RESULTS, Ledger, bars, facts, write_json
from prenet_gnn.training.config import SHIPPED, RunConfig
from prenet_gnn.training.fit import predict_rows
from prenet_gnn.training.rows import Rows
from prenet_gnn.tuning.objective import fit_proxy
from prenet_gnn.tuning.proxy import PART, VALIDATED, Proxy, ProxyConfig, prepare_proxy, read_proxy
from prenet_gnn.tuning.settings import base_settings
from prenet_gnn.tuning.space import nested

FULL = "full"
KEYS = ("change", "fold", "seed")
COLUMNS = (*VALIDATED, "mean", "fit_s")
EPOCHS = 10
RESAMPLES = 2000
# Groups of rows (a family or a device) with fewer rows are no group to compare.
FEWEST_ROWS = 5


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the table: other settings, what is taken from the rows, operators beside them."""

    settings: dict[str, Any] = field(default_factory=dict)
    rows: str = ""
    operators: bool = False


ABLATIONS: dict[str, Change] = {
    FULL: Change(),
    "without FLOPs (CO)": Change(rows="flops"),
    "without memory traffic (CM)": Change(rows="memory"),
    "without device rates (CT)": Change(rows="rates"),
    "without edges": Change(rows="edges"),
    "without tensor sizes on edges": Change(rows="tensor sizes"),
    "without message passing": Change({"model.conv": "none"}),
    "one-hot device, no specifications": Change({"train.latent_penalty": 0.0}, "device"),
    "without roofline prior": Change({"model.use_prior": False}),
    "without host-bound term": Change({"model.use_host": False}),
    "without source terms": Change(rows="source"),
    "with operator rows": Change(operators=True),
    "mean readout": Change(rows="mean"),
    "without partly filled waves": Change({"model.use_fill": False}),
    "without issue rate of memory traffic": Change({"model.use_issue": False}),
    "without rates for 1x1 and 3x3 convolutions": Change({"model.use_conv_classes": False}),
    "without tiles and image rows": Change(rows="tiles"),
    "without fused kernels": Change(rows="fusion"),
    "without hidden operator names": Change({"model.operator_dropout": 0.0}),
    "with device-relative correction": Change({"model.use_device_head": True}),
    "layer: GraphSAGE": Change({"model.conv": "sage"}),
    "layer: GATv2": Change({"model.conv": "gatv2"}),
    "layer: GINE": Change({"model.conv": "gine"}),
}
QUICK = (FULL, "without message passing", "without FLOPs (CO)")


def run_one(
    proxy: Proxy, base: dict[str, Any], name: str, seed: int, epochs: int
) -> tuple[dict[str, float], np.ndarray]:
    """Fits one change with one seed; gives its scores and the error of every validation row."""
    change = ABLATIONS[name]
    config = RunConfig.from_dict(nested({**change.settings, "train.seed": seed}, base))
    changed = Proxy(changed_rows(proxy.rows, change.rows), proxy.train, proxy.validation)
    started = time.perf_counter()
    operators = known_operators(proxy) if change.operators else None
    fitted = fit_proxy(changed, config, epochs, operators=operators)
    seconds = time.perf_counter() - started
    predicted = predict_rows(fitted, changed.rows, changed.validation)
    errors = np.abs(predicted / proxy.rows.seconds[proxy.validation] - 1)
    part = proxy.rows.frame[PART].to_numpy()[proxy.validation]
    scores = {kind: float(errors[part == kind].mean()) for kind in VALIDATED}
    return {**scores, "mean": float(np.mean(list(scores.values()))), "fit_s": seconds}, errors


def known_operators(proxy: Proxy) -> Rows:
    """Operators that were timed alone on chips that the sample is fitted to."""
    from prenet_gnn.data.splits import chip_name
    from prenet_gnn.training.prepare import prepare_operators

    operators = prepare_operators(None)
    seen = {chip_name(str(gpu)) for gpu in proxy.rows.frame["gpu"].to_numpy()[proxy.train]}
    known = [chip_name(str(gpu)) in seen for gpu in operators.frame["gpu"]]
    return operators.only(np.flatnonzero(known))


def groups_of(proxy: Proxy) -> np.ndarray:
    """The family of rows of unseen families, the device of rows of unseen devices."""
    from prenet_gnn.data.families import families

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
    table = pd.DataFrame(ledger.rows).astype({name: float for name in COLUMNS})
    found = []
    for name, part in table.groupby("change", sort=False):
        line = {
            "change": name,
            "runs": len(part),
            **{kind: round(float(part[kind].mean()), 4) for kind in (*VALIDATED, "mean")},
            "spread": round(float(part["mean"].std(ddof=1)), 4) if len(part) > 1 else 0.0,
        }
        differences = _differences(part, folder)
        if name != FULL and len(differences):
            line |= {k: round(v, 4) for k, v in significance(differences).items()}
            line["groups"] = len(differences)
        found.append(line)
    return found


def _differences(part: pd.DataFrame, folder: Path) -> np.ndarray:
    """Mean change of the error in each group of rows, over folds and seeds."""
    collected: dict[str, list[float]] = {}
    for name, fold, seed in zip(part["change"], part["fold"], part["seed"], strict=True):
        files = [_errors_file(folder, n, int(fold), int(seed)) for n in (name, FULL)]
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


def report(ledger: Ledger, folder: Path, out: Path, settings: dict[str, Any]) -> None:
    """Writes the summary and the plot and prints the table."""
    lines = summary(ledger, folder)
    write_json(out.with_suffix(".json"), {"changes": lines, "settings": settings, **facts()})
    bars(
        out.with_suffix(".png"),
        [line["change"] for line in lines],
        {kind: [line[kind] for line in lines] for kind in (*VALIDATED, "mean")},
        spreads={"mean": [line["spread"] for line in lines]},
        title="Validation MAPE by change (bars of the mean: standard deviation)",
        unit="MAPE",
        logarithmic=True,
    )
    for line in lines:
        mark = f"  {line['difference']:+.1%} p={line['p_value']:.3f}" if "p_value" in line else ""
        print(f"{line['change']:<36}{line['mean']:>8.1%} ± {line['spread']:.1%}{mark}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="samples and errors by row")
    parser.add_argument("--config", type=Path, default=SHIPPED)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folds", type=int, nargs="+", default=[1])
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--only", nargs="+", choices=ABLATIONS, help="these changes and 'full'")
    parser.add_argument("--quick", action="store_true", help="three changes, few rows")
    parser.add_argument("--out", type=Path, help="name of the result files, without suffix")
    args = parser.parse_args()
    names = QUICK if args.quick else tuple(ABLATIONS)
    if args.only:
        names = (FULL, *(name for name in args.only if name != FULL))
    rows, epochs = (200, 1) if args.quick else (args.rows, args.epochs)
    out = args.out or RESULTS / f"ablations{'-quick' if args.quick else ''}"
    ledger = Ledger(out.with_suffix(".csv"), KEYS, COLUMNS)
    base = base_settings(args.config)
    runs = [(n, f, s) for s in range(args.seeds) for f in args.folds for n in names]
    proxies: dict[int, Proxy] = {}
    for name, fold, seed in runs:
        if ledger.has(change=name, fold=fold, seed=seed):
            continue
        if fold not in proxies:
            sample = args.folder / f"fold{fold}-rows{rows}"
            prepare_proxy(sample, ProxyConfig(fold=fold, rows=rows, validation_rows=rows // 2))
            proxies[fold] = read_proxy(sample)
            np.save(args.folder / f"groups-{fold}.npy", groups_of(proxies[fold]))
        scores, errors = run_one(proxies[fold], base, name, seed, epochs)
        np.save(_errors_file(args.folder, name, fold, seed), errors)
        ledger.add({"change": name, "fold": fold, "seed": seed, **scores})
        print(f"{name:<36} fold {fold} seed {seed}: {scores['mean']:.1%}"
              f" in {scores['fit_s']:.0f} s", flush=True)  # fmt: skip
    report(ledger, args.folder, out, {"rows": rows, "epochs": epochs, "base": base})


if __name__ == "__main__":
    main()
