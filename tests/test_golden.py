"""Predictions of the shipped weights stay what they were while the code is rebuilt."""

from __future__ import annotations

import json

import pytest

from experiments import golden

# Processors add up in another order: `python -m experiments.golden` compares more finely.
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def now():
    return golden.compute()


def test_predictions_are_those_written_down(now):
    worst, where = golden.compare(now)
    assert worst <= TOLERANCE, where


def test_every_way_to_run_and_kind_of_device_is_in_it():
    listed = list(golden.questions())
    assert len(listed) >= 300
    workloads = [workload for *_, workload in listed]
    assert {w.precision for w in workloads} == set(golden.PRECISIONS)
    assert {w.mode for w in workloads} == {"train", "infer"}
    assert {w.framework for w in workloads} == set(golden.FRAMEWORKS)
    assert {(w.compiled, w.channels_last) for w in workloads} == {
        (compiled, last) for compiled in (False, True) for last in (False, True)
    }
    assert {device for _, _, device, _ in listed} == set(golden.DEVICES)


def test_a_changed_prediction_is_found(now):
    changed = json.loads(json.dumps(now))
    changed["predictions"][5]["seconds"] *= 1.0 + 1e-4
    changed["predictions"][5]["memory"]["weights_bytes"] += 1
    worst, where = golden.compare(changed)
    assert worst == pytest.approx(1e-4, rel=0.01)
    assert where == ".predictions[5].seconds"
    changed["predictions"][5]["warnings"] = ["another"]
    assert golden.compare(changed)[0] == float("inf")
