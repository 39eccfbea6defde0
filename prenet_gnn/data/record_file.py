"""The JSON-lines file that keeps records of measurements, whatever is killed while it writes."""

from __future__ import annotations

import gzip
import logging
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prenet_gnn.common.files import read_json, write_whole
from prenet_gnn.data.records import MeasuredRecord
from prenet_gnn.errors import DataError

log = logging.getLogger(__name__)


@contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    """Keeps other writers out where the system can; elsewhere one writer is assumed."""
    try:
        import fcntl
    except ImportError:  # not a Unix system
        yield
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _whole_lines(descriptor: int) -> int:
    """Size of the file up to its last line end; what follows was torn by a kill."""
    size = os.fstat(descriptor).st_size
    position, chunk = size, 1 << 16
    while position > 0:
        start = max(0, position - chunk)
        os.lseek(descriptor, start, os.SEEK_SET)
        found = os.read(descriptor, position - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        position = start
    return 0


def check_target(path: Path | str) -> None:
    """Refuses a file that records cannot be added to, before anything is measured.

    Raises:
        DataError: It is a folder, compressed, or holds something else.
    """
    path = Path(path)
    if path.suffix == ".gz":
        raise DataError(f"{path} is compressed; append to a plain .jsonl file.")
    try:
        if path.exists():
            with path.open("rb") as file:
                _check_start(path, file.read(1))
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}.") from None


def _check_start(path: Path, first: bytes) -> None:
    if first not in (b"", b"{"):
        raise DataError(f"{path} is no records file, so nothing is added to it: name another file.")


def append_record(path: Path | str, record: MeasuredRecord) -> None:
    """Adds one line in one write, so that a kill leaves a whole line or one torn tail.

    A torn tail of an earlier kill is cut off first; otherwise it would swallow this line.
    """
    path = Path(path)
    if path.suffix == ".gz":
        raise DataError(f"{path} is compressed; append to a plain .jsonl file.")
    data = (record.to_json() + "\n").encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}.") from None
    try:
        with _locked(descriptor):
            _check_start(path, os.read(descriptor, 1))
            whole = _whole_lines(descriptor)
            os.ftruncate(descriptor, whole)
            if os.write(descriptor, data) != len(data):
                os.ftruncate(descriptor, whole)
                raise DataError(f"cannot write {path}: the disk is full.")
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lines(path: Path) -> list[bytes]:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {error}.") from None
    return data.split(b"\n")


def read_records(path: Path | str, notes: list[str] | None = None) -> tuple[MeasuredRecord, ...]:
    """Reads a records file (`.jsonl` or `.jsonl.gz`).

    A last line without its end was torn by a kill: it is dropped with a note. Damage anywhere
    else is an error that names the line.

    Args:
        path: File to read.
        notes: Gets one line of text for whatever was dropped.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"no records file {path}. Make one with 'prenet measure MODEL -o {path}'.")
    *lines, tail = _lines(path)
    if tail.strip():
        note = f"{path}: dropped a torn last line ({len(tail)} bytes)"
        log.warning(note)
        if notes is not None:
            notes.append(note)
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(MeasuredRecord.from_dict(read_json(line)))
        except (ValueError, RecursionError, DataError) as error:
            raise DataError(f"{path} line {number} cannot be used: {error}") from None
    return tuple(records)


def write_gzip(path: Path | str, records: Iterable[MeasuredRecord]) -> int:
    """Writes records compactly, byte for byte the same for the same records; returns the bytes.

    The file appears whole or not at all.
    """
    data = "".join(record.to_json() + "\n" for record in records).encode()
    packed = gzip.compress(data, compresslevel=9, mtime=0)
    write_whole(path, packed)
    return len(packed)
