"""Pages of the documentation are followed to the letter, and none is lost."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from prenet_gnn.cli import main

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"<!-- (run|file: \S+) -->\n```(\w+)\n(.*?)```", re.DOTALL)
FOLLOWED = sorted(page.name for page in DOCS.glob("*.md") if BLOCK.search(page.read_text()))


def test_the_pages_for_newcomers_are_followed() -> None:
    pages = {f"adding_{name}.md" for name in ("operator", "device", "model", "layer")}
    assert pages | {"index.md", "measuring.md"} <= set(FOLLOWED)


@pytest.mark.parametrize("page", FOLLOWED)
def test_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prenet_gnn.measuring import runner

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    # spares the test the two short ones of the device
    monkeypatch.setattr(runner, "_hardware", lambda device: ("Test CPU", None))
    names: dict[str, Any] = {"__name__": page.removesuffix(".md")}
    for mark, language, text in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
        if mark.startswith("file: "):
            (tmp_path / mark.removeprefix("file: ")).write_text(text)
        elif language == "python":
            exec(compile(text, page, "exec"), names)
        else:
            assert language == "bash"
            for line in text.strip().splitlines():
                command, *words = shlex.split(line)
                assert (command, main(words)) == ("prenet", 0), line
    for name in [
        n for n, m in sys.modules.items() if str(tmp_path) in str(vars(m).get("__file__"))
    ]:
        del sys.modules[name]


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"\S+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert listed == {page.name for page in DOCS.glob("*.md")}


def test_links_between_pages_lead_somewhere() -> None:
    for page in DOCS.glob("*.md"):
        for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text("utf-8")):
            assert (DOCS / target).exists(), f"{page.name}: {target}"


def test_every_command_that_a_page_shows_exists() -> None:
    from prenet_gnn.cli.app import app

    known = {c.name or getattr(c.callback, "__name__", "") for c in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    for page in DOCS.glob("*.md"):
        shown = set(re.findall(r"(?:^|`)prenet (\w+)", page.read_text("utf-8"), re.MULTILINE))
        assert shown <= known, page.name
