"""Puts generated text between README's markers; run as a program, redoes its example."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def fill_table(name: str, text: str, readme: Path = README) -> None:
    """Replaces what stands between `<!-- table:NAME -->` and `<!-- /table:NAME -->`."""
    marks = f"<!-- table:{name} -->", f"<!-- /table:{name} -->"
    pattern = re.escape(marks[0]) + r"\n.*?" + re.escape(marks[1])
    _replace(readme, pattern, f"{marks[0]}\n{text.strip()}\n{marks[1]}")


def fill_output(name: str, text: str, readme: Path = README) -> None:
    """Replaces the code block that follows `<!-- NAME -->`."""
    mark = f"<!-- {name} -->"
    pattern = re.escape(mark) + r"\n```text\n.*?```"
    _replace(readme, pattern, f"{mark}\n```text\n{text.rstrip()}\n```")


def code_block(name: str, readme: Path = README) -> str:
    """Gives the code block that follows `<!-- NAME -->`."""
    text = readme.read_text(encoding="utf-8")
    found = re.search(rf"<!-- {re.escape(name)} -->\n```\w*\n(.*?)```", text, re.DOTALL)
    if found is None:
        raise SystemExit(f"{readme} has no code block after '<!-- {name} -->'")
    return found[1]


def main() -> None:
    """Runs README's Python example and writes down what it prints."""
    code = code_block("example:python")
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    fill_output("example:output", done.stdout)
    print(done.stdout, end="")


def _replace(readme: Path, pattern: str, new: str) -> None:
    text = readme.read_text(encoding="utf-8")
    changed, count = re.subn(pattern, lambda _: new, text, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{readme}: expected one place for {new.splitlines()[0]}, found {count}")
    readme.write_text(changed, encoding="utf-8")


if __name__ == "__main__":
    main()
