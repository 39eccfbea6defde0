"""How far predictions are from measured times, on rows that the weights have not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prenet_gnn.errors import ConfigError
from prenet_gnn.evaluation.report import Line, Report, stored_report
from prenet_gnn.training.metrics import summary

if TYPE_CHECKING:
    from prenet_gnn.data.splits import Split
    from prenet_gnn.training.rows import Rows

# Baselines that the network has to beat on every split.
BASELINES_SHOWN = ("roofline", "flops")


def score_fold(rows: Rows, fold: Split, predicted: Mapping[str, np.ndarray]) -> list[Line]:
    """Scores of the network and of the baselines, which are fitted to the same rows.

    Args:
        rows: All rows.
        fold: Which of them were held out.
        predicted: The network's seconds for each kind of test rows.
    """
    from prenet_gnn.evaluation.baselines import get_baseline
    from prenet_gnn.evaluation.baselines.pooling import work_sums

    train = work_sums(rows, fold.train)
    fitted = {
        name: get_baseline(name).fit(train, rows.seconds[fold.train]) for name in BASELINES_SHOWN
    }
    lines = []
    for kind, chosen in fold.test.items():
        if not len(chosen):
            continue
        true = rows.seconds[chosen]
        lines.append(Line(kind, "gnn", summary(true, predicted[kind])))
        table = work_sums(rows, chosen)
        for name, baseline in fitted.items():
            lines.append(Line(kind, name, summary(true, baseline.predict(table))))
    return lines


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
