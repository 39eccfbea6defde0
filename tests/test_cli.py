"""The command line as a user meets it: what it prints, and its exit status."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import pytest

from prenet_gnn import __version__
from prenet_gnn.cli import main

NET = """
import torch

def net(batch_size=2):
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)), (
        torch.empty(batch_size, 8, device="meta"),
    )

def broken(batch_size=2):
    raise KeyError("from the user's own code")
"""
T4 = ("--hardware", "Tesla T4")


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Runs the command in an empty folder and gives status, output and error text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PRENET_DATA", raising=False)
    (tmp_path / "net.py").write_text(NET)

    def prenet(*words):
        status = main([str(word) for word in words])
        return status, *capsys.readouterr()

    return prenet


def one_line(text):
    assert "Traceback" not in text
    assert len(text.strip().splitlines()) == 1, text
    return text


def table(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_version_and_help(run):
    assert run("--version")[:2] == (0, f"prenet-gnn {__version__}\n")
    status, out, _ = run("--help")
    assert status == 0
    for name in ("trace", "predict", "compare", "plan", "hardware", "measure", "data"):
        assert name in out
    assert run()[0] == 2


@pytest.mark.parametrize(
    "words",
    [
        ["no-such-command"],
        ["predict", "--no-such-option"],
        ["predict", "net.py:net"],
        ["predict", *T4],
        ["predict", "net.py:net", "--table", "jobs.csv", *T4],
        ["predict", "net.py:net", *T4, "--batch-size", "many"],
        ["trace"],
        ["plan", "net.py:net"],
        ["measure"],
        ["measure", "--sweep", "x"],
        ["data"],
    ],
)
def test_wrong_usage_is_status_2(run, words):
    status, out, err = run(*words)
    assert status == 2
    assert "Traceback" not in out + err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["trace", "timm:no_such_net"], "no_such_net"),
        (["trace", "resnet18"], "names no library"),
        (["trace", "missing.py:net"], "missing.py"),
        (["trace", "net.py:nothing"], "nothing"),
        (["trace", "net.py:broken"], "from the user's own code"),
        (["trace", "net.py:net", "--batch-size", "0"], "batch_size must be between 1 and"),
        (["trace", "net.py:net", "--seq-len", "-1"], "seq_len must be between 1 and"),
        (["trace", "net.py:net", "--mode", "dream"], "Allowed: train, infer"),
        (["trace", "net.py:net", "--attention", "none at all"], "Allowed: sdpa, eager"),
        (["trace", "net.py:net", "-o", "no/such/folder/g.json"], "no/such/folder"),
        (["trace", "graph.json"], "graph.json"),
        (["predict", "net.py:net", "--hardware", "RTX 9999"], "RTX 9999"),
        (["predict", "net.py:net", *T4, "--precision", "fp61"], "fp61"),
        (["predict", "net.py:net", *T4, "--weights", "nowhere"], "nowhere"),
        (["predict", "--table", "jobs.csv"], "jobs.csv"),
        (["compare", "net.py:net", "--sort", "beauty"], "Allowed: time, cost"),
        (["compare", "net.py:net", "--price", "T4"], "NAME=USD_PER_HOUR"),
        (["compare", "net.py:net", "--samples", "0"], "samples must be"),
        (["plan", "net.py:net", "--samples", "10", "--objective", "x"], "Allowed: time, cost"),
        (["plan", "net.py:net", "--samples", "0"], "samples must be above zero"),
        (["hardware", "GTX 0"], "GTX 0"),
        (["data", "check", "--data", "nowhere"], "nowhere"),
    ],
)
def test_a_user_error_is_one_line_and_status_1(run, words, says):
    status, out, err = run(*words)
    assert status == 1
    assert out == ""
    assert says in one_line(err)
    assert err.startswith("prenet: ")


def test_debug_shows_where_an_error_came_from(run):
    with pytest.raises(Exception, match="no_such_net"):
        run("trace", "timm:no_such_net", "--debug")


def test_ctrl_c_is_one_line_and_status_130(run, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("prenet_gnn.predictor.bulk.trace_request", interrupt)
    status, _, err = run("trace", "net.py:net")
    assert status == 130
    assert one_line(err) == "prenet: interrupted\n"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ModuleNotFoundError("no timm", name="timm"), "pip install 'prenet-gnn[zoo]'"),
        (ModuleNotFoundError("no tea", name="tea.pot"), "pip install tea"),
        (PermissionError(13, "Permission denied", "g.json"), "g.json: Permission denied"),
        (ZeroDivisionError("oh\nno"), "internal error (ZeroDivisionError: oh no)"),
    ],
)
def test_other_errors_are_one_line_too(run, monkeypatch, error, says):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("prenet_gnn.predictor.bulk.trace_request", fail)
    status, _, err = run("trace", "net.py:net")
    assert status == 1
    assert says in one_line(err)


def test_trace_shows_modules_to_a_depth_and_writes_by_ending(run, tmp_path):
    status, out, _ = run("trace", "net.py:net", "--depth", "0", "-o", "g.csv", "--html", "g.html")
    assert status == 0
    assert "saved" in out and "share" in out
    assert (tmp_path / "g.csv").read_text().startswith("index,name,module,operator")
    assert (tmp_path / "g.html").read_text().startswith("<!doctype html>")
    deeper = run("trace", "net.py:net", "--depth", "9")[1]
    assert len(deeper.splitlines()) > len(out.splitlines())
    assert "forward FLOP" in run("trace", "net.py:net", "--operators")[1]


@pytest.mark.parametrize(
    ("options", "text"),
    [(["-o", "g.xyz"], "end it in"), (["--html", "g.json"], "end 'g.json' in .html")],
)
def test_trace_refuses_other_endings(run, options, text):
    status, _, err = run("trace", "net.py:net", *options)
    assert status == 1
    assert text in err


def test_trace_prints_and_writes_a_graph(run, tmp_path):
    status, out, _ = run("trace", "net.py:net", "--batch-size", "4", "-o", "g.json")
    assert status == 0
    assert "batch 4" in out
    assert "parameters" in out
    status, out, _ = run("trace", "g.json", "--json")
    facts = json.loads(out)
    assert status == 0
    assert facts["total_flops"] == 2 * 4 * (8 * 16 + 16 * 4)
    assert facts["total_params"] == 8 * 16 + 16 + 16 * 4 + 4
    assert facts["batch_size"] == 4


def test_a_stored_graph_keeps_its_shapes(run):
    run("trace", "net.py:net", "-o", "g.json")
    status, _, err = run("trace", "g.json", "--seq-len", "8")
    assert (status, "fixed" in err) == (1, True)
    status, _, err = run("trace", "g.json", "--mode", "infer")
    assert (status, "--mode train" in err) == (1, True)


def test_predict_prints_parts_that_add_up(run):
    status, out, _ = run("predict", "net.py:net", *T4, "--json")
    p = json.loads(out)
    assert status == 0
    assert p["hardware"] == "Tesla T4"
    assert 0 < p["low_s"] <= p["seconds"] <= p["high_s"]
    assert p["forward_s"] + p["backward_s"] + p["optimizer_s"] == pytest.approx(
        p["seconds"], rel=0.02
    )
    status, out, _ = run("predict", "net.py:net", *T4)
    assert status == 0
    for word in ("iteration", "forward", "backward", "optimizer", "memory", "fits", "costliest"):
        assert word in out


def test_predict_infer_has_no_backward(run):
    status, out, _ = run("predict", "net.py:net", *T4, "--mode", "infer")
    assert status == 0
    assert "backward" not in out


def test_predict_a_stored_graph_at_another_batch_size(run):
    run("trace", "net.py:net", "--batch-size", "4", "-o", "g.json")
    first = json.loads(run("predict", "g.json", *T4, "--json")[1])
    again = json.loads(run("predict", "net.py:net", *T4, "--batch-size", "4", "--json")[1])
    assert first["seconds"] == pytest.approx(again["seconds"], rel=1e-6)


def test_a_table_keeps_its_rows_and_a_bad_one_fills_its_error(run, tmp_path):
    rows = [
        ["model", "batch_size", "hardware", "note", "mode"],
        ["net.py:net", "4", "Tesla T4", "first", "train"],
        ["net.py:missing", "4", "Tesla T4", "second", ""],
        ["net.py:net", "8.0", "NVIDIA GeForce RTX 4090", "third", "infer"],
        ["net.py:net", "8", "RTX 9999", "fourth", ""],
    ]
    with (tmp_path / "jobs.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    status, out, err = run("predict", "--table", "jobs.csv", "-o", "out.csv")
    assert (status, out) == (0, "")
    assert "2 of 4 rows failed" in one_line(err)
    found = table(tmp_path / "out.csv")
    assert [row["note"] for row in found] == ["first", "second", "third", "fourth"]
    assert [bool(row["error"]) for row in found] == [False, True, False, True]
    assert [bool(row["seconds"]) for row in found] == [True, False, True, False]
    assert float(found[0]["low_s"]) <= float(found[0]["seconds"]) <= float(found[0]["high_s"])
    status, out, _ = run("predict", "--table", "jobs.csv", "--json")
    assert status == 0
    assert [row["seconds"] is None for row in json.loads(out)["rows"]] == [False, True, False, True]


def test_hardware_lists_shows_and_reads_files(run, tmp_path):
    status, out, _ = run("hardware")
    assert status == 0
    assert "NVIDIA H100-SXM5-80GB" in out
    status, out, _ = run("hardware", "h100 sxm5 80gb", "--json")
    entry = json.loads(out)
    assert entry["name"] == "NVIDIA H100-SXM5-80GB"
    assert entry["peaks"]["fp32"] == pytest.approx(67e12, rel=0.02)
    assert "memory_bytes" in run("hardware", "Tesla T4")[1]
    assert len(json.loads(run("hardware", "--json")[1])["devices"]) > 100


def test_compare_ranks_every_device(run, tmp_path):
    status, out, _ = run("compare", "net.py:net", "--json", "--csv", "devices.csv")
    devices = json.loads(out)["devices"]
    assert status == 0
    assert len(devices) > 100
    times = [row["seconds"] for row in devices if row["fits"]]
    assert times == sorted(times)
    assert len(table(tmp_path / "devices.csv")) == len(devices)
    status, out, _ = run(
        "compare", "net.py:net", "--devices", "Tesla T4", "--price", "Tesla T4=0.5", "--top", "1"
    )
    assert status == 0
    assert "given by the user" in out


def test_plan_finds_an_option(run):
    words = ("plan", "net.py:net", "--samples", "1000", "--devices", "Tesla T4")
    status, out, _ = run(*words, "--objective", "cost", "--json")
    plan = json.loads(out)
    assert status == 0
    assert plan["best"]["hardware"] == "Tesla T4"
    assert plan["best"]["cost_usd"] > 0
    status, out, _ = run(*words, "--no-compile", "--precision", "fp32")
    assert status == 0
    assert "compiled" not in out
    assert "best" in out
    status, _, err = run(*words, "--deadline", "1e-9")
    assert status == 1
    assert "deadline binds" in one_line(err)


def test_importing_the_package_loads_no_torch():
    code = "import sys, prenet_gnn, prenet_gnn.cli.app; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
