"""The study of speed in its short form; no figure is judged, since machines differ."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

pytest.importorskip("torchvision")

from experiments import speed
from experiments.shared import results


def test_the_short_form_fills_every_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "QUICK", tmp_path)
    speed.main(["--quick", "--write"])
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "speed.json").read_text())
    assert [row["devices"] > 100 for row in found["all_devices"]] == [True]
    assert [row["operators"] for row in found["growth"]] == list(speed.SMALL.lengths)
    assert [row["command"] for row in found["starts"]] == list(speed.SMALL.commands)
    assert found["growth"][0]["over_shortest"] == 1.0
    assert {"commit", "versions", "threads", "python"} <= found.keys()
    numbers = [
        value
        for rows in (*(found[n] for n in ("all_devices", "growth", "starts")), [found["batch"]])
        for row in rows
        for value in row.values()
        if not isinstance(value, str)
    ]
    assert len(numbers) >= 15
    assert all(math.isfinite(value) and value > 0 for value in numbers)
    for name in speed.SMALL.commands:
        assert name in printed


def test_no_two_layers_of_a_chain_are_alike() -> None:
    from prenet_gnn.encoding.template import build_template

    assert len(build_template(speed.chain(50), "fp32").nodes) == 50


def test_a_command_that_fails_is_no_figure() -> None:
    with pytest.raises(RuntimeError, match="no such word"):
        speed.child([speed.sys.executable, "-c", "raise SystemExit('no such word')"])
