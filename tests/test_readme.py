"""What README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(mark: str) -> str:
    """The code block that follows an HTML comment."""
    found = re.search(rf"<!-- {re.escape(mark)} -->\n```\w*\n(.*?)```", README, re.DOTALL)
    assert found, f"README has no block '{mark}'"
    return found[1]


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("number", [1, 2])
def test_set_up_commands_are_one_line_each(number):
    assert len(block(f"command:{number}").strip().splitlines()) == 1


def test_the_python_example_prints_what_readme_says():
    pytest.importorskip("timm")
    expected = block("example:output")
    assert expected.strip(), "README's output is missing: run `python -m experiments.readme`"
    assert run(block("example:python")) == expected


def test_the_search_example_runs():
    pytest.importorskip("torchvision")
    assert run(block("example:search")).strip() in {"8", "16", "32"}


def test_every_command_in_readme_exists():
    from prenet_gnn.cli.app import app

    known = {c.name or c.callback.__name__ for c in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    shown = set(re.findall(r"^prenet (\w+)", README, re.MULTILINE))
    assert shown
    assert shown <= known


def test_links_to_files_of_the_repository_exist():
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", README):
        assert (ROOT / target).exists(), target
