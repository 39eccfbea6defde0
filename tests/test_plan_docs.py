"""The page on planning shows commands that exist, each with its output."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("pandas")

from experiments.plan_docs import DOCS, PAGE, shown_commands

TEXT = PAGE.read_text(encoding="utf-8")


def test_every_command_has_its_output():
    commands = shown_commands()
    assert len(commands) == TEXT.count("```bash")
    for name, words in commands.items():
        found = re.search(rf"<!-- {re.escape(name)} -->\n```text\n(.*?)```", TEXT, re.DOTALL)
        assert found, name
        assert found[1].strip(), f"{name}: run `python -m experiments.plan_docs`"
        assert words[0] == name.partition(":")[0] or name.startswith("binds")
        status = "(exit status 1)" in found[1]
        assert status == name.startswith("binds"), name


@pytest.mark.parametrize("model", ["resnet50", "bert-large", "llama-3-8b"])
@pytest.mark.parametrize("command", ["predict", "compare", "plan"])
def test_every_model_is_shown_with_every_command(model, command):
    assert f"{command}:{model}" in shown_commands()


@pytest.mark.parametrize("name", ["parallel", "ranking", "speed"])
def test_tables_are_filled(name):
    found = re.search(rf"<!-- table:{name} -->\n(.*?)<!-- /table", TEXT, re.DOTALL)
    assert found
    assert found[1].count("\n") > 2


def test_the_screenshot_is_there_and_small():
    image = DOCS / "images" / "report.png"
    assert image.read_bytes().startswith(b"\x89PNG")
    assert image.stat().st_size < 300_000
