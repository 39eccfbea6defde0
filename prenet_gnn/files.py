"""Writes files whole or not at all, so that no reader ever sees half a result."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: str | Path, text: str) -> None:
    """Writes text next to the target and then renames it into place.

    A crash, a full disk or Ctrl-C leaves the old file as it was. Something that is not a plain
    file (a pipe, a terminal) is written directly, since it can't be replaced.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    # A symbolic link keeps pointing where it did: the file behind it is replaced.
    path = path.resolve()
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
