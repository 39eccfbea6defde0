"""Writes files whole or not at all, so that no reader ever sees half a result."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from prenet_gnn.common.pids import is_running


def read_json(text: str | bytes) -> Any:
    """Reads JSON; a key that stands twice in an object is an error, since one value would be lost.

    Raises:
        ValueError: The text is no JSON, or names a key twice.
    """
    return json.loads(text, object_pairs_hook=_without_doubles)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key '{twice}' is there twice")
    return found


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Writes text, in UTF-8, or bytes next to the target and then renames it into place.

    A crash, a full disk or Ctrl-C leaves the old file as it was. Something that is not a plain
    file (a pipe, a terminal) is written directly, since it can't be replaced.
    """
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        try:
            path.write_bytes(data)
        except OSError as error:
            raise _of(path, error) from None
        return
    # A symbolic link keeps pointing where it did: the file behind it is replaced.
    path = path.resolve()
    try:
        with replacing(path) as draft, draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise _of(path, error) from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a draft beside a file, with the file's endings; it takes the file's place at the end.

    An error leaves the old file as it was, and no draft.
    """
    draft = path.with_name(f".pid{os.getpid()}.tmp.{path.name}")
    try:
        yield draft
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def remove_abandoned(folder: Path) -> None:
    """Removes the drafts of processes that were killed."""
    for draft in folder.glob(".pid*.tmp.*"):
        pid = draft.name.split(".")[1].removeprefix("pid")
        if not (pid.isdigit() and is_running(int(pid))):
            draft.unlink(missing_ok=True)


def _of(path: Path, error: OSError) -> OSError:
    """The same error, with the name that the user gave instead of the draft's, or of none."""
    return OSError(error.errno, error.strerror, str(path))
