"""Calibration: synthetic devices are recovered, shrinkage holds, files are checked."""

import dataclasses
import json
import math
import random
from dataclasses import dataclass

import pytest

from experiments.calibration.curve import curve
from experiments.calibration.points import Point
from prenet_gnn.errors import CheckpointError, DataError
from prenet_gnn.measuring import MeasuredRecord
from prenet_gnn.measuring.calibrating import fit_calibration
from prenet_gnn.predictor.calibrated import CalibratedPredictor
from prenet_gnn.predictor.calibration import Calibration, describe, family_of, load_calibration
from prenet_gnn.predictor.prediction import CallShare, Prediction
from prenet_gnn.workload.workload import Workload


@dataclass(frozen=True)
class Graph:
    """Carries the prediction that the frozen predictor will give."""

    seconds: float
    conv: float
    host_s: float


class Predictor:
    checkpoint = "frozen"

    def predict(self, graph, hardware="", workload=None):
        workload = workload or Workload()
        shares = {
            "aten.conv2d.default": graph.conv,
            "aten.linear.default": 0.3 * (1 - graph.conv),
            "aten.add.Tensor": 0.7 * (1 - graph.conv),
        }
        calls = [CallShare("m", o, graph.seconds * s, 0.0) for o, s in shares.items()]
        return Prediction(
            seconds=graph.seconds,
            low_s=graph.seconds * 0.5,
            high_s=graph.seconds * 2.0,
            forward_s=graph.seconds,
            backward_s=0.0,
            optimizer_s=0.0,
            peak_memory_bytes=1,
            fits=True,
            hardware="Test CPU",
            workload=workload,
            device_s=graph.seconds,
            host_s=graph.host_s,
            call_source=lambda: tuple(calls),
        )

    def predict_many(self, graphs, hardware, workloads=None):
        return [self.predict(graph) for graph in graphs]


def graph(seconds, conv=0.5, host_s=1e-3):
    return Graph(seconds, conv, host_s)


def record(seconds, batch=1, **changes):
    base = MeasuredRecord(
        model="timm:x", batch_size=batch + 1, hardware="Test CPU", seconds=seconds
    )
    return dataclasses.replace(base, **changes)


def fit(pairs, **changes):
    """Calibration from (graph, measured seconds) pairs."""
    graphs = {number: g for number, (g, _) in enumerate(pairs)}
    records = [record(s, batch=n, **changes) for n, (_, s) in enumerate(pairs)]
    return fit_calibration(records, Predictor(), graph_of=lambda r: graphs[r.batch_size - 1])


def corrected(calibration, g, workload=None):
    return CalibratedPredictor(Predictor(), calibration).predict(
        g, "Test CPU", workload or Workload()
    )


def test_a_device_twice_as_slow_is_found_from_three_records():
    found = fit([(graph(s, conv), 2 * s) for s, conv in [(0.1, 0.8), (0.02, 0.4), (0.5, 0.1)]])
    for seconds, conv in [(0.3, 0.6), (0.05, 0.2), (1.0, 0.9)]:
        assert corrected(found, graph(seconds, conv)).seconds == pytest.approx(
            2 * seconds, rel=0.05
        )


def test_one_record_moves_mostly_the_common_factor_and_not_all_the_way():
    """One network may be off where its device is not."""
    found = fit([(graph(0.1), 0.2)])
    assert 0.14 < corrected(found, graph(0.1)).seconds < 0.19
    other = corrected(found, graph(0.1, conv=0.0), Workload(mode="infer", optimizer="none"))
    assert other.seconds == pytest.approx(corrected(found, graph(0.1)).seconds, rel=0.15)
    again = fit([(graph(0.1), 0.2)] * 10)
    assert corrected(again, graph(0.1)).seconds == pytest.approx(0.2, rel=0.03)


def test_exact_predictions_stay_as_they_are():
    found = fit([(graph(s), s) for s in (0.1, 0.2, 0.4)])
    assert corrected(found, graph(0.3)).seconds == pytest.approx(0.3, rel=1e-9)


def test_families_are_told_apart_with_more_records():
    """Convolutions take three times as predicted, the rest is right."""
    rng = random.Random(0)

    def truth(seconds, conv):
        return seconds * (3 * conv + (1 - conv))

    points = [(rng.uniform(0.05, 1.0), rng.random()) for _ in range(30)]
    found = fit([(graph(s, c), truth(s, c)) for s, c in points])
    few = fit([(graph(s, c), truth(s, c)) for s, c in points[:1]])

    def error(calibration):
        tests = [(0.2, 0.05), (0.2, 0.5), (0.2, 0.95)]
        return max(
            abs(math.log(corrected(calibration, graph(s, c)).seconds / truth(s, c)))
            for s, c in tests
        )

    assert error(found) < 0.15
    assert error(found) < 0.5 * error(few)


def test_slow_host_shows_in_launch_bound_models_only():
    small = [(graph(2e-3 * k, host_s=1e-2), 2e-3 * k * 2.0) for k in (1, 1.2, 1.4, 1.6)]
    large = [(graph(1.0 * k, host_s=1e-2), 1.0 * k) for k in (1, 1.2, 1.4, 1.6)]
    found = fit(small + large)
    assert corrected(found, graph(1.5, host_s=1e-2)).seconds == pytest.approx(1.5, rel=0.1)
    assert corrected(found, graph(2.2e-3, host_s=1e-2)).seconds == pytest.approx(4.4e-3, rel=0.2)


def test_one_disturbed_measurement_does_not_bend_the_rest():
    pairs = [(graph(0.1 * k), 0.2 * k) for k in range(1, 10)]
    found = fit([*pairs, (graph(0.5), 20.0)])
    assert corrected(found, graph(0.3)).seconds == pytest.approx(0.6, rel=0.05)


def test_many_records_narrow_the_interval_and_few_do_not():
    few = corrected(fit([(graph(0.1), 0.2)] * 2), graph(0.1))
    assert few.high_s / few.seconds == pytest.approx(2.0)
    many = corrected(fit([(graph(0.1 + 0.01 * k), 0.2 + 0.02 * k) for k in range(20)]), graph(0.2))
    assert many.low_s < many.seconds < many.high_s
    assert many.high_s / many.seconds < 1.4


def test_other_devices_pass_unchanged_with_a_warning():
    found = dataclasses.replace(fit([(graph(0.1), 0.2)]), hardware="Other GPU")
    prediction = corrected(found, graph(0.1))
    assert prediction.seconds == 0.1
    assert "Other GPU" in prediction.warnings[0]


def test_predict_many_agrees_with_predict():
    found = fit([(graph(0.1), 0.2)])
    graphs = [graph(0.1), graph(0.3, conv=0.9)]
    many = CalibratedPredictor(Predictor(), found).predict_many(graphs, ["Test CPU"], Workload())
    assert [p.seconds for p in many] == [corrected(found, g).seconds for g in graphs]
    assert CalibratedPredictor(Predictor(), found).checkpoint == "frozen"


def test_the_breakdown_is_corrected_too():
    found = fit([(graph(0.1), 0.2)])
    before, after = Predictor().predict(graph(0.1)), corrected(found, graph(0.1))
    factor = after.seconds / before.seconds
    assert sum(after.by_operator().values()) == pytest.approx(after.seconds)
    assert after.forward_s == pytest.approx(before.forward_s * factor)
    assert after.peak_memory_bytes == before.peak_memory_bytes


def test_shares_add_up():
    features = describe(Predictor().predict(graph(0.1), workload=Workload(precision="amp_bf16")))
    assert features["conv"] + features["matmul"] + features["memory"] == pytest.approx(1.0)
    assert features["precision:amp_bf16"] == 1.0
    assert 0 < features["launch"] < 1


@pytest.mark.parametrize(
    ("operator", "family"),
    [
        ("conv", "conv"),
        ("aten.conv2d.default", "conv"),
        ("aten.linear.default", "matmul"),
        ("attention", "matmul"),
        ("lstm", "recurrent"),
        ("(optimizer)", "optimizer"),
        ("(other)", "memory"),
        ("batch_norm", "memory"),
        ("aten.add.Tensor", "memory"),
    ],
)
def test_family_of(operator, family):
    assert family_of(operator) == family


def test_unusable_records():
    with pytest.raises(DataError, match="no measured time"):
        fit_calibration([record(None, status="oom")], Predictor())
    two = [record(0.1), record(0.1, hardware="Other GPU")]
    with pytest.raises(DataError, match="several devices \\(Other GPU, Test CPU\\)"):
        fit_calibration(two, Predictor())
    with pytest.raises(DataError, match="there are: Other GPU, Test CPU"):
        fit_calibration(two, Predictor(), hardware="Third")
    chosen = fit_calibration(two, Predictor(), hardware="Test CPU", graph_of=lambda r: graph(0.1))
    assert chosen.records == 1


def test_file_round_trip(tmp_path):
    found = fit([(graph(0.1), 0.2), (graph(0.2, 0.9), 0.5)])
    path = tmp_path / "c.json"
    found.save(path)
    assert load_calibration(path) == found
    assert "Test CPU" in str(found)
    assert Calibration.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "other"}, "no calibration"),
        ({"schema": 99}, "calibrate again"),
        ({"log_factors": None}, "damaged"),
        ({"log_factors": {"all": "nan"}}, "damaged"),
        ({"covariance": [[1.0]]}, "damaged"),
        ({"residual_std": []}, "damaged"),
    ],
)
def test_damaged_files_are_one_clear_line(tmp_path, change, message):
    values = json.loads(fit([(graph(0.1), 0.2)]).to_json()) | change
    path = tmp_path / "c.json"
    path.write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=message) as raised:
        load_calibration(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_and_unreadable_files(tmp_path):
    with pytest.raises(CheckpointError, match="cannot read calibration"):
        load_calibration(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(CheckpointError, match="is JSON"):
        load_calibration(tmp_path / "bad.json")
    with pytest.raises(CheckpointError, match="cannot write"):
        fit([(graph(0.1), 0.2)]).save(tmp_path / "no" / "c.json")


def test_curve_falls_and_beats_one_factor():
    """Two kinds of models on a device whose convolutions are slow."""
    rng = random.Random(1)
    points = []
    for number in range(60):
        conv = rng.choice([0.1, 0.9])
        features = {"all": 1.0, "conv": conv, "memory": 1 - conv}
        measured_s = (1.2 + 1.2 * conv) * math.exp(rng.gauss(0, 0.02))
        points.append(Point(f"m{number % 40}", features, 1.0, measured_s))
    steps = {step.count: step for step in curve(points, repeats=20)}
    assert list(steps) == [0, 1, 3, 10, 30]
    errors = [steps[count].calibrated for count in (0, 1, 10, 30)]
    assert errors == sorted(errors, reverse=True)
    assert steps[10].calibrated < 0.5 * steps[10].rescaled
    assert steps[10].calibrated < 8
