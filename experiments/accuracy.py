"""How accurate is the predictor on families, devices and rows it has not seen?

    python -m experiments.accuracy --fold 1 [--config FILE] [--seed 0] [--quick]
    python -m experiments.accuracy --split torchvision-to-timm
    python -m experiments.accuracy --split cnn-to-transformer
    python -m experiments.accuracy --leave-out-device "Tesla T4"

Fits without one joint fold (see `prenet_gnn.data.splits`) or without what a protocol holds out
(see `experiments.protocols`), scores the network and the baselines on it, by split, device and
family, and writes one JSON file. A run that was stopped goes on from its last epoch. No measured
row is written, only figures over groups of rows.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from experiments.protocols import LEAVE_OUT, PROTOCOLS
from experiments.provenance import RESULTS, provenance
from prenet_gnn.errors import PreNetError
from prenet_gnn.training.config import SHIPPED

if TYPE_CHECKING:
    from prenet_gnn.data.splits import Split
    from prenet_gnn.training.rows import Rows

# Groups with fewer rows are left out of the lists by device and family.
SMALLEST_GROUP = 5
# Beside the checkpoint of a run: predicted seconds of every split, for `experiments.ensemble`.
PREDICTED = "predicted.npz"


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


def run(
    part: int | str,
    config: Path,
    seed: int,
    changes: list[str],
    out: Path,
    *,
    device: str = "",
) -> dict[str, Any]:
    """Fits and scores one joint fold, by its number, or one protocol, and writes its file."""
    from experiments.protocols import protocol
    from prenet_gnn.data.splits import joint_fold
    from prenet_gnn.training.config import load_config
    from prenet_gnn.training.parallel import is_first
    from prenet_gnn.training.prepare import prepare_rows
    from prenet_gnn.training.run import fit_ensemble

    settings = load_config(config, changes, seed)
    rows = prepare_rows(None)
    joint = isinstance(part, int)
    fold = joint_fold(rows.frame, int(part)) if joint else protocol(rows, str(part), device)
    folder = out.with_suffix("")
    fitted = fit_ensemble(
        rows,
        fold,
        replace(settings, members=1),
        folder=folder,
        report=lambda epoch, figures: print(epoch, figures, flush=True),
    )
    predicted = {kind: fitted.predict(chosen) for kind, chosen in fold.test.items()}
    if is_first():
        arrays: dict[str, Any] = dict(predicted)
        np.savez(folder / PREDICTED, **arrays)
    command = f"python -m experiments.accuracy {_words(part, device)} --seed {seed}"
    result = {
        "fold" if joint else "protocol": part,
        "seed": seed,
        "config": settings.to_dict(),
        "held_out_devices": list(fold.devices),
        "held_out_families": list(fold.families),
        "training_rows": len(fold.train),
        **scored(rows, fold, predicted),
        **provenance(command),
    }
    if is_first():
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def scored(rows: Rows, fold: Split, predicted: dict[str, np.ndarray]) -> dict[str, Any]:
    """Scores of the network and of the baselines, and errors by device and family."""
    from prenet_gnn.data.families import families
    from prenet_gnn.evaluation.evaluate import score_fold

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
    scores = score_fold(rows, fold, predicted)
    return {
        "scores": [{"split": s, "predictor": p, **plain(x.to_dict())} for s, p, x in scores],
        "details": details,
    }


def _words(part: int | str, device: str) -> str:
    """The options that choose a part."""
    if isinstance(part, int):
        return f"--fold {part}"
    return f'--leave-out-device "{device}"' if part == LEAVE_OUT else f"--split {part}"


def _stem(part: int | str, device: str) -> str:
    """The name of a part in file names."""
    plain_device = re.sub(r"[^A-Za-z0-9]+", "-", device).strip("-").lower()
    if isinstance(part, int):
        return f"fold{part}"
    return f"without-{plain_device}" if part == LEAVE_OUT else part


def plain(scores: dict[str, Any]) -> dict[str, Any]:
    """Scores with None for what is not a number, which JSON does not know."""
    return {name: None if value != value else value for name, value in scores.items()}


def quantile(log_ratio: np.ndarray, chosen: np.ndarray, level: float = 0.9) -> dict[str, Any]:
    """The half-width, in natural logarithm, that covers `level` of the chosen rows."""
    errors = np.abs(log_ratio[chosen])
    if not len(errors):
        return {"rows": 0}
    return {
        "rows": len(errors),
        "half_width": float(np.quantile(errors, level)),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--fold", type=int, default=1, choices=range(5))
    which.add_argument("--split", choices=PROTOCOLS, help="a transfer protocol")
    which.add_argument("--leave-out-device", metavar="NAME", default="")
    parser.add_argument("--config", type=Path, default=SHIPPED)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="two short epochs, a smoke test")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    changes = ["train.epochs=2", "train.rows_per_epoch=500"] if args.quick else []
    device = args.leave_out_device
    part = LEAVE_OUT if device else args.split or args.fold
    quick = "-quick" if args.quick else ""
    name = f"accuracy-{_stem(part, device)}-seed{args.seed}{quick}.json"
    out = args.out or RESULTS / name
    try:
        result = run(part, args.config, args.seed, changes, out, device=device)
    except PreNetError as error:
        raise SystemExit(f"accuracy: {error}") from None
    for row in result["scores"]:
        print(f"{row['split']:<30}{row['predictor']:<10}{row['rows']:>6}{row['mape']:>8.1%}"
              f"{row['median_ape']:>8.1%}{row['p90_ape']:>8.1%}{row['bias']:>+8.1%}")  # fmt: skip


if __name__ == "__main__":
    main()
