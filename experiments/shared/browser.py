"""Opens a page in the system's browser, without a window and without network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# A loaded machine may need long for the five megabytes of a report.
PATIENCE_MS = 240_000


@dataclass
class Loaded:
    """A page, and everything that went wrong while it loaded or was used."""

    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def find_browser() -> str | None:
    """Path of a browser that Playwright can drive."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def opened(path: Path, width: int = 1180, height: int = 900) -> Iterator[Loaded]:
    """Opens a file.

    Raises:
        FileNotFoundError: There is no browser.
        ModuleNotFoundError: Playwright is not installed.
    """
    from playwright.sync_api import sync_playwright

    program = find_browser()
    if program is None:
        raise FileNotFoundError("no browser found: install chromium")
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"], timeout=PATIENCE_MS
        )
        size = {"width": width, "height": height}
        loaded = Loaded(browser.new_context(offline=True, viewport=size).new_page())
        page = loaded.page
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: loaded.errors.append(str(error)))
        page.on(
            "console",
            lambda message: message.type == "error" and loaded.errors.append(message.text),
        )
        page.on("request", lambda request: loaded.requests.append(request.url))
        page.goto(path.resolve().as_uri())
        yield loaded
        browser.close()
