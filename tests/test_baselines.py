from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from prenet_gnn.errors import ConfigError, DataError
from prenet_gnn.evaluation.baselines import BASELINES, get_baseline, register_baseline
from prenet_gnn.evaluation.baselines.pooling import FEATURE_SETS, columns_of
from prenet_gnn.evaluation.baselines.regressors import REGRESSORS, make_regressor
from prenet_gnn.training.metrics import mape


def make_rows(count: int = 60, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    forward = 10 ** rng.uniform(9, 12, count)
    slow = rng.random(count) < 0.5
    rows = pd.DataFrame(
        {
            "device": np.where(slow, "slow", "fast"),
            "forward_flops": forward,
            "backward_flops": 2 * forward,
            "bytes": forward / 1000,
            "peak_flops_per_s": np.where(slow, 1e13, 1e14),
            "memory_bytes_per_s": np.where(slow, 1e12, 2e12),
        }
    )
    seconds = 3 * forward / rows["peak_flops_per_s"].to_numpy() * np.where(slow, 2.0, 3.0)
    return rows, seconds


@pytest.mark.parametrize("name", BASELINES)
class TestEveryBaseline:
    def test_predictions_are_positive_and_one_per_row(self, name):
        rows, seconds = make_rows()
        predicted = get_baseline(name).fit(rows, seconds).predict(rows.head(7))
        assert predicted.shape == (7,)
        assert (predicted > 0).all()

    def test_order_of_rows_does_not_matter(self, name):
        rows, seconds = make_rows()
        order = np.random.default_rng(1).permutation(len(rows))
        first = get_baseline(name).fit(rows, seconds).predict(rows)
        second = get_baseline(name).fit(rows.iloc[order], seconds[order]).predict(rows)
        assert first == pytest.approx(second, rel=1e-6)

    def test_bad_times_and_lengths_are_errors(self, name):
        rows, seconds = make_rows()
        with pytest.raises(DataError, match="cannot be fitted"):
            get_baseline(name).fit(rows, seconds[:-1])
        with pytest.raises(DataError, match="finite and positive"):
            get_baseline(name).fit(rows, -seconds)

    def test_missing_column_is_an_error(self, name):
        rows, seconds = make_rows()
        baseline = get_baseline(name)
        for column in baseline.columns:
            with pytest.raises(DataError, match=column):
                baseline.fit(rows.drop(columns=column), seconds)


def test_roofline_is_exact_where_times_are_a_factor_per_device():
    rows, seconds = make_rows()
    baseline = get_baseline("roofline").fit(rows, seconds)
    assert mape(seconds, baseline.predict(rows)) < 1e-9
    # An unseen device gets the mean factor, sqrt(2 x 3).
    unseen = rows.assign(device="new")
    ratio = baseline.predict(unseen) / (seconds / np.where(rows["device"] == "slow", 2.0, 3.0))
    assert ratio == pytest.approx(np.sqrt(6.0))


def test_flops_regression_finds_a_line():
    rows, _ = make_rows()
    seconds = 1e-3 + 2e-13 * (rows["forward_flops"] + rows["backward_flops"])
    predicted = get_baseline("flops").fit(rows, seconds).predict(rows)
    assert mape(seconds, predicted) < 1e-3


def test_linear_uses_every_numeric_column_and_beats_flops_alone():
    rows, seconds = make_rows()
    rows["exact"] = seconds
    assert mape(seconds, get_baseline("linear").fit(rows, seconds).predict(rows)) < 1e-3
    assert mape(seconds, get_baseline("flops").fit(rows, seconds).predict(rows)) > 0.1


def test_names_are_checked():
    with pytest.raises(ConfigError, match=r"Allowed: .*mean"):
        get_baseline("median")
    with pytest.raises(ConfigError, match="already"):
        register_baseline("mean")(BASELINES["mean"])


def test_feature_sets_are_nested():
    table = pd.DataFrame(columns=["batch_size", "flops_conv", "bytes_input", "time_memory"])
    sets = [columns_of(table, name) for name in FEATURE_SETS]
    assert [len(names) for names in sets] == [1, 2, 3, 4]
    assert sets[-1] == list(table.columns)
    with pytest.raises(ConfigError, match="Allowed: Baseline"):
        columns_of(table, "CM")


def test_column_of_zeros_that_is_none_in_other_rows_does_not_blow_up():
    rows, seconds = make_rows()
    rows["rare"] = 0.0
    predicted = get_baseline("linear").fit(rows, seconds).predict(rows.assign(rare=1e6))
    assert np.isfinite(predicted).all()


def test_every_regressor_has_a_name_and_a_wrong_name_is_an_error():
    with pytest.raises(ConfigError, match="Allowed: linear, forest"):
        make_regressor("tree")
    for name in REGRESSORS:
        assert hasattr(make_regressor(name), "predict")
