"""What the committed result files have to say about how they were made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).resolve().parents[1] / "experiments" / "results"
FILES = sorted(path.relative_to(RESULTS).as_posix() for path in RESULTS.rglob("*.json"))


def test_there_are_results() -> None:
    assert len(FILES) > 5


@pytest.mark.parametrize("name", FILES)
def test_a_result_names_its_code_and_its_data(name: str) -> None:
    result = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    assert "torch" in result["versions"]
    # tables of tracing take their rows from several runs, and read no measured data
    commits = result["commits"] if name.startswith("tracing/") else [result["commit"]]
    assert commits
    assert all(len(commit.removesuffix("-dirty")) >= 7 for commit in commits)
    assert result["command"].startswith("python -m ")
    if not name.startswith("tracing/"):
        assert all(len(digest) == 64 for digest in result["data_sha256"].values())
        assert "measurements.csv.gz" in result["data_sha256"]
