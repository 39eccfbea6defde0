"""How accurate is the predictor on families, devices and rows it has not seen?

    python -m experiments.accuracy --fold 1 [--config FILE] [--seed 0] [--quick]

Fits without one joint fold (see `prenet_gnn.training.folds`), scores the network and the baselines
on what was held out, by split, device and family, and writes one JSON file. No measured row is
written, only figures over groups of rows.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from prenet_gnn.training.folds import Fold
    from prenet_gnn.training.rows import Rows

RESULTS = Path(__file__).parent / "results"
SHIPPED = Path(__file__).parent / "configs" / "shipped.toml"
# Groups with fewer rows are left out of the lists by device and family.
SMALLEST_GROUP = 5
# Steps of the distribution of errors that a result file keeps, for coverage on other folds.
QUANTILES = 101


def groups(frame: pd.DataFrame, chosen: np.ndarray, log_ratio: np.ndarray, by: list[str]) -> Any:
    """Errors per group of rows: MAPE, median, bias and spread of the logarithm, worst first."""
    table = frame.iloc[chosen][by].reset_index(drop=True)
    table["ape"], table["log"] = np.abs(np.expm1(log_ratio)), log_ratio
    parts = table.groupby(by, dropna=False)
    result = pd.DataFrame(
        {
            "rows": parts.size(),
            "mape": parts["ape"].mean(),
            "median": parts["ape"].median(),
            "bias": parts["log"].mean(),
            "spread": parts["log"].std(),
        }
    )
    result = result[result["rows"] >= SMALLEST_GROUP].sort_values("mape", ascending=False)
    return json.loads(result.round(4).reset_index().to_json(orient="records"))


def git_commit() -> str:
    """The commit of the code, with a mark when files differ from it."""
    try:
        text = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parent,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return text.stdout.strip()


def fold_operators(fold: Fold) -> Rows:
    """Operators timed alone on devices that a fold does not hold out."""
    from prenet_gnn.data.splits import chip_name
    from prenet_gnn.training.run import prepare_operators

    operators = prepare_operators(None)
    held = {chip_name(device) for device in fold.devices}
    seen = [chip_name(str(device)) not in held for device in operators.frame["gpu"]]
    return operators.only(np.flatnonzero(seen))


def run(fold_number: int, config: Path, seed: int, changes: list[str], out: Path) -> dict[str, Any]:
    """Fits and scores one fold and writes its file."""
    import torch

    from prenet_gnn.data.families import families
    from prenet_gnn.evaluation import score_fold
    from prenet_gnn.training.fit import fit, predict_rows
    from prenet_gnn.training.folds import joint_fold
    from prenet_gnn.training.run import load_config, prepare_rows

    settings = load_config(config, changes, seed)
    rows = prepare_rows(None)
    fold = joint_fold(rows.frame, fold_number)
    operators = fold_operators(fold) if settings.train.operators_per_step else None
    fitted = fit(
        rows,
        fold.train,
        np.zeros(0, dtype=np.int64),
        settings.model,
        settings.train,
        operators=operators,
        folder=out.with_suffix(""),
        report=lambda epoch, figures: print(epoch, figures, flush=True),
    )
    predicted = {kind: predict_rows(fitted, rows, chosen) for kind, chosen in fold.test.items()}
    scores = score_fold(rows, fold, predicted)
    frame = rows.frame.assign(family=families(rows.frame).to_numpy())
    details: dict[str, Any] = {}
    for kind, chosen in fold.test.items():
        ratio = np.log(predicted[kind] / rows.seconds[chosen])
        details[kind] = {
            "by_device": groups(frame, chosen, ratio, ["gpu", "mode", "precision"]),
            "by_family": groups(frame, chosen, ratio, ["family"]),
            "intervals": {
                mode: quantile(ratio, (frame["mode"].to_numpy()[chosen] == mode))
                for mode in ("train", "infer")
            },
        }
    result = {
        "fold": fold_number,
        "seed": seed,
        "config": settings.to_dict(),
        "held_out_devices": list(fold.devices),
        "held_out_families": list(fold.families),
        "scores": [{"split": s, "predictor": p, **plain(x.to_dict())} for s, p, x in scores],
        "details": details,
        "commit": git_commit(),
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def plain(scores: dict[str, Any]) -> dict[str, Any]:
    """Scores with None for what is not a number, which JSON does not know."""
    return {name: None if value != value else value for name, value in scores.items()}


def quantile(log_ratio: np.ndarray, chosen: np.ndarray, level: float = 0.9) -> dict[str, Any]:
    """The half-width, in natural logarithm, that covers `level` of the chosen rows, and a grid."""
    errors = np.abs(log_ratio[chosen])
    if not len(errors):
        return {"rows": 0}
    grid = np.quantile(errors, np.linspace(0.0, 1.0, QUANTILES))
    return {
        "rows": len(errors),
        "half_width": float(np.quantile(errors, level)),
        "quantiles": [round(float(value), 4) for value in grid],
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fold", type=int, default=1, choices=range(5))
    parser.add_argument("--config", type=Path, default=SHIPPED)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="two short epochs, a smoke test")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    changes = ["train.epochs=2", "train.rows_per_epoch=500"] if args.quick else []
    name = f"accuracy-fold{args.fold}-seed{args.seed}{'-quick' if args.quick else ''}.json"
    result = run(args.fold, args.config, args.seed, changes, args.out or RESULTS / name)
    for row in result["scores"]:
        print(f"{row['split']:<22}{row['predictor']:<10}{row['rows']:>6}{row['mape']:>8.1%}"
              f"{row['median_ape']:>8.1%}{row['p90_ape']:>8.1%}{row['bias']:>+8.1%}")  # fmt: skip


if __name__ == "__main__":
    main()
