"""The page on planning shows commands with what they print."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("pandas")

from experiments.plan_docs import PAGE, printed, shown_commands
from experiments.shared.markdown import DOCS

TEXT = PAGE.read_text(encoding="utf-8")
# A plan is shown as far as the best device; the search's later tries may end differently elsewhere.
HEAD = 3


def test_every_command_has_its_output():
    commands = shown_commands()
    assert len(commands) == TEXT.count("```bash")
    assert {name.partition(":")[0] for name in commands} == {"predict", "compare", "plan", "binds"}


@pytest.mark.parametrize("name", shown_commands())
def test_a_command_prints_what_the_page_shows(name, tmp_path, monkeypatch):
    pytest.importorskip("timm")
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    shown = re.search(rf"<!-- {re.escape(name)} -->\n```text\n(.*?)```", TEXT, re.DOTALL)
    assert shown, name
    lines = slice(HEAD if name.startswith("plan:") else None)
    found = printed(shown_commands()[name]).splitlines()
    assert found[lines] == shown[1].rstrip().splitlines()[lines], "python -m experiments.plan_docs"


@pytest.mark.parametrize("name", ["parallel", "ranking", "speed"])
def test_tables_are_filled(name):
    found = re.search(rf"<!-- table:{name} -->\n(.*?)<!-- /table", TEXT, re.DOTALL)
    assert found
    assert found[1].count("\n") > 2


def test_the_screenshot_is_there_and_small():
    image = DOCS / "images" / "report.png"
    assert image.read_bytes().startswith(b"\x89PNG")
    assert image.stat().st_size < 300_000
