"""Pages of the documentation are followed to the letter, and none is lost."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from prenet_gnn.cli import main

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
EVERY = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
BLOCK = re.compile(r"<!-- (run|file: \S+) -->\n```(\w+)\n(.*?)```", re.DOTALL)
FOLLOWED = sorted(page.name for page in PAGES if BLOCK.search(page.read_text("utf-8")))
# A block of code, with the line before it.
FENCED = re.compile(r"(?:^|\n)([^\n]*)\n```(\w+)\n(.*?)\n```(?=\n|$)", re.DOTALL)
# Marks that say who runs a block, or why nobody does. README's are run by `tests/test_readme.py`,
# the example of `docs/what_if.md` by `tests/test_what_if.py`, shown output of
# `docs/plan_and_compare.md` is made by `python -m experiments.plan_docs`.
MARK = re.compile(r"<!-- (run|file: \S+|example:[\w-]+|command:\d|shown|not run: \S.*) -->")
# What a page may name: a folder or file of the repository, or something to import.
SPAN = re.compile(r"`[^`\n]+`")
NAMED = re.compile(r"(?<![\w./])(?:prenet_gnn|tracing|experiments|tests|docs)[./][\w./-]+\w/?")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_the_pages_for_newcomers_are_followed() -> None:
    pages = {f"adding_{name}.md" for name in ("operator", "device", "model", "layer")}
    assert pages | {"index.md", "checking.md", "measuring.md", "tracing.md"} <= set(FOLLOWED)


@pytest.mark.parametrize("page", FOLLOWED)
def test_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    names: dict[str, Any] = {"__name__": page.removesuffix(".md")}
    for mark, language, text in BLOCK.findall(text_of(DOCS / page)):
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


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.name)
def test_every_example_is_run_or_says_why_not(page: Path) -> None:
    for before, language, text in FENCED.findall(text_of(page)):
        if language != "text":
            assert MARK.fullmatch(before), f"{page.name}: nobody runs ```{language}\n{text}"


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    spans = " ".join(SPAN.findall(text_of(page)))
    assert [name for name in NAMED.findall(spans) if not exists(name)] == []


def exists(name: str) -> bool:
    """Whether a name is a path, a module or something that a module defines."""
    if "/" in name:
        return (ROOT / name).exists()
    module, _, attribute = name.rpartition(".")
    if importable(name):
        return True
    return importable(module) and hasattr(importlib.import_module(module), attribute)


def importable(name: str) -> bool:
    try:
        return bool(name) and importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"\S+\.md", text_of(ROOT / "mkdocs.yml")))
    assert listed == {page.name for page in PAGES}


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", text_of(page)):
            assert (DOCS / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.name)
def test_every_command_and_option_that_a_page_shows_exists(page: Path) -> None:
    known = shown_options()
    text = text_of(page).replace("\\\n", " ")
    for name, rest in re.findall(r"(?:^|[`/ ])prenet (\w+)([^`\n]*)", text, re.MULTILINE):
        assert name in known, name
        unknown = set(re.findall(r"(?<=\s)--[\w-]+", rest)) - known[name]
        assert not unknown, f"prenet {name}: {unknown}"


def shown_options() -> dict[str, set[str]]:
    """Every command of `prenet` with its options, those of commands below it too."""
    from typer.main import get_command

    from prenet_gnn.cli.app import app

    def options(command: Any) -> set[str]:
        own = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        return own.union({"--help"}, *map(options, getattr(command, "commands", {}).values()))

    return {name: options(each) for name, each in get_command(app).commands.items()}
