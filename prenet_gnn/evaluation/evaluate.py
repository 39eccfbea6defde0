"""How far predictions are from measured times, on rows that the weights have not seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prenet_gnn.errors import ConfigError, DataError
from prenet_gnn.training.metrics import Scores, summary

if TYPE_CHECKING:
    import pandas as pd

    from prenet_gnn.data.splits import Split
    from prenet_gnn.training.rows import Rows

# Baselines that the network has to beat on every split.
BASELINES_SHOWN = ("roofline", "flops")
NOMINAL = 0.9


@dataclass(frozen=True)
class Report:
    """Scores by split and predictor, with what they were measured with."""

    scores: tuple[tuple[str, str, Scores], ...]
    facts: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The scores as plain data; None where too few rows give no figure."""
        rows = [
            {"split": s, "predictor": p, **{n: _known(v) for n, v in scores.to_dict().items()}}
            for s, p, scores in self.scores
        ]
        return {"scores": rows, **self.facts}

    def __str__(self) -> str:
        """A table for the terminal."""
        lines = [
            f"{'split':<24}{'predictor':<12}{'rows':>7}{'MAPE':>8}{'median':>8}{'p90':>8}{'bias':>8}"
        ]
        for split, predictor, s in self.scores:
            lines.append(
                f"{split:<24}{predictor:<12}{s.rows:>7}{s.mape:>8.1%}{s.median_ape:>8.1%}"
                f"{s.p90_ape:>8.1%}{s.bias:>+8.1%}"
            )
        lines.extend(f"{name}: {value}" for name, value in self.facts.items())
        return "\n".join(lines)


def _known(value: Any) -> Any:
    """JSON has no NaN."""
    return None if isinstance(value, float) and math.isnan(value) else value


def pooled(rows: Rows, chosen: np.ndarray) -> pd.DataFrame:
    """Sums over whole graphs as the baselines take them, one row per chosen row."""
    import pandas as pd

    from prenet_gnn.catalogue.devices import get_hardware

    table = []
    for i in chosen:
        encoded, workload = rows.store.entries[rows.keys[i]], rows.workloads[i]
        hardware = get_hardware(str(rows.frame.gpu.iat[i]))
        work = encoded.counts @ encoded.work
        back = float("backward" in workload.phases)
        table.append(
            {
                "device": hardware.name,
                "forward_flops": work[0],
                "backward_flops": work[1] * back,
                "bytes": work[2] + work[3] * back,
                "peak_flops_per_s": hardware.peak_flops_per_s(workload.precision),
                "memory_bytes_per_s": hardware.memory_bytes_per_s,
            }
        )
    return pd.DataFrame(table)


def score_fold(
    rows: Rows, fold: Split, predicted: Mapping[str, np.ndarray]
) -> list[tuple[str, str, Scores]]:
    """Scores of the network and of the baselines, which are fitted to the same rows.

    Args:
        rows: All rows.
        fold: Which of them were held out.
        predicted: The network's seconds for each kind of test rows.
    """
    from prenet_gnn.evaluation.baselines import get_baseline

    train = pooled(rows, fold.train)
    fitted = {
        name: get_baseline(name).fit(train, rows.seconds[fold.train]) for name in BASELINES_SHOWN
    }
    scores = []
    for kind, chosen in fold.test.items():
        if not len(chosen):
            continue
        true = rows.seconds[chosen]
        scores.append((kind, "gnn", summary(true, predicted[kind])))
        table = pooled(rows, chosen)
        for name, baseline in fitted.items():
            scores.append((kind, name, summary(true, baseline.predict(table))))
    return scores


def evaluate_fold(
    fold_number: int,
    *,
    config: Path | None = None,
    changes: Sequence[str] = (),
    data: str | Path | None = None,
    seed: int = 0,
) -> Report:
    """Fits what ships without the held-out rows of one joint fold and scores on them."""
    from prenet_gnn.data.splits import joint_fold
    from prenet_gnn.training import prepare
    from prenet_gnn.training.config import load_config
    from prenet_gnn.training.run import fit_ensemble

    settings = load_config(config, changes, seed)
    rows = prepare.prepare_rows(data)
    fold = joint_fold(rows.frame, fold_number)
    fitted = fit_ensemble(rows, fold, settings, data=data)
    predicted = {kind: fitted.predict(chosen) for kind, chosen in fold.test.items()}
    facts = {"fold": fold_number, "seed": seed, "held-out devices": ", ".join(fold.devices)}
    return Report(tuple(score_fold(rows, fold, predicted)), facts)


def stored_report(facts: Mapping[str, Any]) -> Report:
    """The figures that were measured when the weights were made.

    Raises:
        DataError: The weights carry none.
    """
    accuracy = facts.get("accuracy")
    if not accuracy:
        raise DataError(
            "these weights carry no scores: run `prenet evaluate --fold 0` with the measured data."
        )
    names = list(Scores.__dataclass_fields__)
    scores = tuple(
        (str(row["split"]), str(row["predictor"]), Scores(**{n: row[n] for n in names}))
        for row in accuracy["scores"]
    )
    return Report(scores, {k: v for k, v in accuracy.items() if k != "scores"})


def run_evaluation(
    predictor: Any,
    *,
    data: str | Path | None = None,
    fold: int | None = None,
    config: Path | None = None,
    changes: Sequence[str] = (),
    seed: int = 0,
) -> Report:
    """Scores of a fresh fit without a fold, or those that the weights carry."""
    if fold is not None:
        return evaluate_fold(fold, config=config, changes=changes, data=data, seed=seed)
    if config is not None or changes or seed:
        raise ConfigError("training settings and seeds are for --fold: name the fold to leave out.")
    return stored_report(predictor.checkpoint.facts)
