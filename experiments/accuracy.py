"""How accurate is the predictor on families, devices and rows it has not seen?

    python -m experiments.accuracy --fold 1 [--config FILE] [--seed 0] [--quick]
    python -m experiments.accuracy --split torchvision-to-timm
    python -m experiments.accuracy --split cnn-to-transformer
    python -m experiments.accuracy --leave-out-device "Tesla T4"

Fits without one joint fold (see `prenet_gnn.data.splits`) or without what a protocol holds out
(see `experiments.shared.protocols`), scores the network and the baselines on it, by split, device
and family, and writes one JSON file. A run that was stopped goes on from its last epoch. No
measured row is written, only figures over groups of rows.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from experiments.shared.command import (
    CONFIG,
    FOLDS,
    OUT,
    QUICK,
    SEED,
    OneOf,
    Option,
    Options,
    command,
)
from experiments.shared.markdown import table
from experiments.shared.protocols import LEAVE_OUT, PROTOCOLS
from experiments.shared.results import Result, folder_of, provenance, write_result

if TYPE_CHECKING:
    from prenet_gnn.data.splits import Split
    from prenet_gnn.training.rows import Rows

# Groups with fewer rows are left out of the lists by device and family.
SMALLEST_GROUP = 5
# Beside the checkpoint of a run: predicted seconds of every split, for `experiments.ensemble`.
PREDICTED = "predicted.npz"
SCORES = {
    "split": "{split}", "predictor": "{predictor}", "rows": "{rows}", "MAPE": "{mape:.1%}",
    "median": "{median_ape:.1%}", "p90": "{p90_ape:.1%}", "bias": "{bias:+.1%}",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """What is held out: a joint fold by its number, a protocol, or a device with its chip."""

    name: int | str
    device: str = ""

    @property
    def stem(self) -> str:
        """The name in file names."""
        if isinstance(self.name, int):
            return f"fold{self.name}"
        plain_device = re.sub(r"[^A-Za-z0-9]+", "-", self.device).strip("-").lower()
        return f"without-{plain_device}" if self.device else self.name

    @property
    def facts(self) -> dict[str, int | str]:
        """What the result file says of it."""
        return {"fold" if isinstance(self.name, int) else "protocol": self.name}

    def of(self, rows: Rows) -> Split:
        """The rows to fit to and to judge on."""
        from experiments.shared.protocols import protocol
        from prenet_gnn.data.splits import joint_fold

        if isinstance(self.name, int):
            return joint_fold(rows.frame, self.name)
        return protocol(rows, self.name, self.device)


def groups(frame: pd.DataFrame, chosen: np.ndarray, log_ratio: np.ndarray, by: list[str]) -> Any:
    """Errors per group of rows: MAPE, median, bias and spread of the logarithm, worst first."""
    rows = frame.iloc[chosen][by].reset_index(drop=True)
    rows["ape"], rows["log"] = np.abs(np.expm1(log_ratio)), log_ratio
    parts = rows.groupby(by, dropna=False)
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


def run(part: Part, config: Path, seed: int, changes: list[str], out: Path) -> Result:
    """Fits and scores one part; the network stays in the folder `out`."""
    from prenet_gnn.training.config import load_config
    from prenet_gnn.training.fit import Watch
    from prenet_gnn.training.parallel import is_first
    from prenet_gnn.training.prepare import prepare_rows
    from prenet_gnn.training.run import fit_ensemble

    settings = load_config(config, changes, seed)
    rows = prepare_rows(None)
    split = part.of(rows)
    watch = Watch(out, lambda epoch, figures: print(epoch, figures, flush=True))
    fitted = fit_ensemble(rows, split, replace(settings, members=1), watch=watch)
    predicted = {kind: fitted.predict(chosen) for kind, chosen in split.test.items()}
    result = {
        **part.facts,
        "seed": seed,
        "config": settings.to_dict(),
        "held_out_devices": list(split.devices),
        "held_out_families": list(split.families),
        "training_rows": len(split.train),
        **scored(rows, split, predicted),
        **provenance(),
    }
    if is_first():
        np.savez(out / PREDICTED, **predicted)  # type: ignore[arg-type]
        write_result(out.name, result, out.parent)
    return result


def scored(rows: Rows, split: Split, predicted: dict[str, np.ndarray]) -> Result:
    """Scores of the network and of the baselines, and errors by device and family."""
    from prenet_gnn.data.families import families
    from prenet_gnn.evaluation.evaluate import score_fold

    frame = rows.frame.assign(family=families(rows.frame).to_numpy())
    details: dict[str, Any] = {}
    for kind, chosen in split.test.items():
        ratio = np.log(predicted[kind] / rows.seconds[chosen])
        details[kind] = {
            "by_device": groups(frame, chosen, ratio, ["gpu", "mode", "precision"]),
            "by_family": groups(frame, chosen, ratio, ["family"]),
            "intervals": {
                mode: quantile(ratio, (frame["mode"].to_numpy()[chosen] == mode))
                for mode in ("train", "infer")
            },
        }
    return {
        "scores": [line.to_dict() for line in score_fold(rows, split, predicted)],
        "details": details,
    }


def quantile(log_ratio: np.ndarray, chosen: np.ndarray, level: float = 0.9) -> dict[str, Any]:
    """The half-width, in natural logarithm, that covers `level` of the chosen rows."""
    errors = np.abs(log_ratio[chosen])
    if not len(errors):
        return {"rows": 0}
    return {"rows": len(errors), "half_width": float(np.quantile(errors, level))}


@command(
    OneOf(
        Option("--fold", type=int, default=1, choices=FOLDS),
        Option("--split", choices=PROTOCOLS, help="a transfer protocol"),
        Option("--leave-out-device", metavar="NAME", default=""),
    ),
    CONFIG,
    SEED,
    QUICK,
    OUT,
)
def main(options: Options) -> None:
    """Fits, scores and prints the scores."""
    device = options.leave_out_device
    part = Part(LEAVE_OUT if device else options.split or options.fold, device)
    changes = ["train.epochs=2", "train.rows_per_epoch=500"] if options.quick else []
    folder = options.out or folder_of(options.quick)
    out = folder / f"accuracy-{part.stem}-seed{options.seed}"
    result = run(part, options.config, options.seed, changes, out)
    print(table(result["scores"], SCORES))


if __name__ == "__main__":
    main()
