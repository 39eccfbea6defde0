"""Writes a file whole or not at all."""

from __future__ import annotations

import gzip
import os
import tempfile
from pathlib import Path

from tracing.errors import TraceError


def write_atomic(path: Path, text: str) -> None:
    """Writes text to `path` through a temporary file beside it; `.gz` is compressed."""
    data = text.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=5, mtime=0)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise TraceError(f"cannot write '{path}': {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise TraceError(f"cannot write '{path}': {error.strerror}") from None
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
