from __future__ import annotations

import json
import math

import numpy as np
import pytest

from prenet_gnn.errors import DataError
from prenet_gnn.training import metrics

TRUE = [1.0, 2.0, 4.0, 8.0]
PREDICTED = [1.1, 1.8, 5.0, 8.0]  # errors 10%, 10%, 25%, 0%

GOLDEN = {
    metrics.mape: 0.1125,
    metrics.median_ape: 0.1,
    metrics.p90_ape: 0.1 + 0.7 * 0.15,  # linear between the third and the fourth of 0, .1, .1, .25
    metrics.bias: (1.1 * 0.9 * 1.25) ** 0.25 - 1,
    metrics.spearman: 1.0,
}


@pytest.mark.parametrize("score", GOLDEN, ids=lambda f: f.__name__)
def test_scores_match_numbers_worked_out_by_hand(score):
    assert score(TRUE, PREDICTED) == pytest.approx(GOLDEN[score])


def test_within_counts_errors_up_to_the_limit():
    assert metrics.within([1, 1, 1, 1], [1.05, 0.95, 1.2, 0.5]) == 0.5
    assert metrics.within([1, 1, 1, 1], [1.05, 0.95, 1.2, 0.5], limit=0.3) == 0.75


def test_bias_is_signed_and_symmetric_in_the_ratio():
    assert metrics.bias([1, 1], [2, 0.5]) == pytest.approx(0)
    assert metrics.bias([1, 1], [0.5, 0.5]) == pytest.approx(-0.5)


@pytest.mark.parametrize(
    ("predicted", "expected"),
    [([4, 3, 2, 1], -1.0), ([1, 1, 2, 2], math.sqrt(0.8)), ([3, 3, 3, 3], math.nan)],
)
def test_spearman_reversed_tied_and_constant(predicted, expected):
    assert metrics.spearman([1, 2, 3, 4], predicted) == pytest.approx(expected, nan_ok=True)


def test_coverage_counts_both_limits_as_inside():
    assert metrics.coverage([1, 2, 3, 4], [1, 1, 1, 5], [2, 2, 2, 6]) == 0.5


def test_summary_agrees_with_the_single_scores():
    low, high = [0.5, 1.9, 3.0, 8.5], [1.5, 2.5, 5.0, 9.0]
    scores = metrics.summary(TRUE, PREDICTED, low, high)
    assert scores.rows == 4
    assert scores.coverage == 0.75
    for score in GOLDEN:
        assert getattr(scores, score.__name__) == pytest.approx(score(TRUE, PREDICTED))
    assert scores.within_10 == metrics.within(TRUE, PREDICTED)
    assert math.isnan(metrics.summary(TRUE, PREDICTED).coverage)
    with pytest.raises(AttributeError):
        scores.mape = 0.0


def test_scores_do_not_depend_on_the_order_of_rows():
    rng = np.random.default_rng(0)
    true = rng.uniform(0.1, 1, 50)
    predicted = true * rng.uniform(0.5, 2, 50)
    order = rng.permutation(50)
    first = metrics.summary(true, predicted).to_dict()
    second = metrics.summary(true[order], predicted[order]).to_dict()
    assert first == pytest.approx(second)


def test_scores_survive_json_which_has_no_nan():
    scores = metrics.summary(TRUE, PREDICTED)
    assert math.isnan(scores.coverage)
    again = metrics.Scores.from_dict(json.loads(json.dumps(scores.to_dict(), allow_nan=False)))
    assert again.mape == scores.mape
    assert math.isnan(again.coverage)


@pytest.mark.parametrize(
    ("true", "predicted", "message"),
    [
        ([], [], "no rows"),
        ([1, 2], [1], "2 measured times, but 1"),
        ([1, 0], [1, 1], "measured time 1 is 0"),
        ([1, 1], [1, float("nan")], "predicted time 1 is nan"),
        ([1, 1], [-1, 1], "predicted time 0 is -1"),
        ([1, float("inf")], [1, 1], "measured time 1 is inf"),
    ],
)
def test_values_that_are_not_times_are_an_error(true, predicted, message):
    with pytest.raises(DataError, match=message):
        metrics.summary(true, predicted)


def test_half_an_interval_and_an_upside_down_one_are_errors():
    with pytest.raises(DataError, match="both"):
        metrics.summary(TRUE, PREDICTED, low_s=TRUE)
    with pytest.raises(DataError, match="upside down"):
        metrics.coverage([1.0], [2.0], [1.0])
