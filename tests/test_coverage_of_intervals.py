"""Coverage of intervals on folds that had no part in their width."""

import numpy as np
import pytest

from experiments.accuracy import QUANTILES, quantile
from experiments.coverage import coverage, held


def result(fold, scale):
    errors = scale * np.linspace(-1.0, 1.0, 4001)
    part = quantile(errors, np.ones(len(errors), dtype=bool))
    splits = ("random", "unseen-architecture", "unseen-device", "unseen-both")
    modes = {"train": part, "infer": part}
    return {"fold": fold, "seed": 0, "details": {split: {"intervals": modes} for split in splits}}


def test_a_grid_of_quantiles_gives_the_share_below_a_width():
    part = result(0, 0.5)["details"]["random"]["intervals"]["train"]
    assert len(part["quantiles"]) == QUANTILES
    assert held(part["quantiles"], 0.45) == pytest.approx(0.9, abs=0.01)
    assert held(part["quantiles"], 9.0) == 1.0


def test_widths_come_from_the_other_folds():
    rows = coverage([result(0, 1.0), result(1, 2.0)])
    found = {row["fold"]: row["coverage"] for row in rows if row["split"] == "unseen-device"}
    assert found[0] == 1.0  # the width of the worse fold
    assert found[1] == pytest.approx(0.45, abs=0.01)
