"""`prenet check`: a prediction made before its measurement, and both side by side."""

import dataclasses
import json

import pytest

from prenet_gnn import Workload, load_predictor
from prenet_gnn.cli import main
from prenet_gnn.errors import ConfigError
from prenet_gnn.measuring import Effort, Point, read_records, runner
from prenet_gnn.measuring.checking import Check, check_model
from prenet_gnn.predictor.prediction import CallShare, Prediction

CALLS = (
    CallShare("a", "aten.conv2d.default", 2.0, 3.0),
    CallShare("b", "aten.linear.default", 1.0, 1.0),
    CallShare("b", "aten.relu.default", 0.5, 0.5),
)
OPERATORS = (
    ("aten::mkldnn_convolution", 3.0, 1),
    ("aten::addmm", 1.0, 1),
    ("aten::copy_", 1.0, 1),
    ("void cutlass_kernel", 5.0, 1),
)


@pytest.fixture(autouse=True)
def known_device(monkeypatch):
    """Spares tests the micro-benchmarks of the device entry."""
    monkeypatch.setattr(runner, "_hardware", lambda device: ("Tesla T4", None))


def prediction(**changes):
    found = Prediction(
        seconds=10.0,
        low_s=8.0,
        high_s=12.0,
        forward_s=3.5,
        backward_s=4.5,
        optimizer_s=2.0,
        peak_memory_bytes=300,
        fits=True,
        hardware="Tesla T4",
        workload=Workload(),
        call_source=lambda: CALLS,
    )
    return dataclasses.replace(found, **changes)


def record(**changes):
    base = runner.MeasuredRecord(
        model="net:mlp",
        batch_size=2,
        seconds=20.0,
        forward_s=6.0,
        loss_s=1.0,
        backward_s=9.0,
        optimizer_s=3.0,
        zero_grad_s=1.0,
        peak_memory_bytes=400,
        operators=OPERATORS,
    )
    return dataclasses.replace(base, **changes)


def measured(parts):
    return {part.name: part.measured for part in parts}


def test_both_sides_count_the_same_phases():
    check = Check(prediction(), record())
    assert check.total.error == pytest.approx(-0.5)
    assert measured(check.phases()) == {"forward": 7.0, "backward": 9.0, "optimizer": 4.0}
    assert check.memory().error == pytest.approx(-0.25)
    assert Check(prediction(), record(mode="infer", optimizer="none")).phases() == []


def test_families_add_up_on_both_sides():
    families = Check(prediction(), record()).families()
    assert sum(part.predicted for part in families) == pytest.approx(10.0)
    assert sum(part.measured for part in families) == pytest.approx(20.0)
    assert [part.name for part in families] == ["convolutions", "other operators", "products"]
    assert families[0].measured == pytest.approx(20.0 * 3 / 10)


def test_kernels_of_a_gpu_are_not_counted_beside_their_operators():
    families = Check(prediction(), record(device_type="cuda")).families()
    assert measured(families)["convolutions"] == pytest.approx(20.0 * 3 / 5)


@pytest.mark.parametrize(("seconds", "inside"), [(8.0, True), (12.5, False), (None, None)])
def test_interval_holds_the_measured_time_or_not(seconds, inside):
    assert Check(prediction(), record(seconds=seconds)).inside is inside


def test_a_model_that_did_not_fit_still_has_its_prediction():
    found = Check(prediction(), runner.MeasuredRecord("net:mlp", 2, status="oom"))
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values["status"] == "oom"
    assert values["total"] == {
        "name": "iteration",
        "predicted": 10.0,
        "measured": None,
        "error": None,
    }
    assert all(part["measured"] is None for part in values["families"])


def test_real_check_on_the_cpu():
    point = Point("net:mlp?depth=1&width=16", 4, workload=Workload(optimizer="adam"))
    found = check_model(point, load_predictor(), "cpu", Effort(iterations=3, threads=1))
    assert found.prediction.hardware == found.record.hardware == "Tesla T4"
    assert found.prediction.workload.timed == ""
    assert found.record.status == "ok"
    assert len(found.record.samples_s) == 3
    assert all(part.measured > 0 for part in found.phases())
    assert sum(part.measured for part in found.families()) == pytest.approx(found.record.seconds)


def test_command_prints_both_and_keeps_the_record(capsys, tmp_path):
    out = tmp_path / "m.jsonl"
    words = ["check", "net:mlp?depth=1", "-b", "2", "--device", "cpu", "--iterations", "2"]
    assert main([*words, "-o", str(out)]) == 0
    text = capsys.readouterr().out
    for word in ("predicted", "measured", "error", "forward", "products", "memory", "90% interval"):
        assert word in text
    assert [r.batch_size for r in read_records(out)] == [2]
    assert main([*words, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["total"]["predicted"] == values["prediction"]["seconds"]
    assert values["total"]["measured"] == values["record"]["seconds"]


@pytest.mark.parametrize("command", ["check", "measure"])
@pytest.mark.parametrize(
    ("option", "says"),
    [
        (["--attention", "eager"], "--attention cannot be chosen"),
        (["--timed", "forward"], "--timed cannot be chosen"),
        (["--batch-size", "0"], "batch_size must be between"),
        (["--image-size", "-3"], "image_size must be between"),
        (["--precision", "tf32"], "tf32 needs a CUDA device"),
    ],
)
def test_what_a_real_run_cannot_do_is_one_line(capsys, command, option, says):
    assert main([command, "net:mlp", "--device", "cpu", *option]) == 1
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_settings_are_checked_before_anything_runs():
    with pytest.raises(ConfigError, match="precision"):
        check_model(Point("net:mlp", 1, workload=Workload(precision="fp12")), None)
