"""Downloads the public source files from where they were published, and verifies every one.

`sources.csv` lists what can be had byte for byte: repository, commit, path, licence and the sha256
of the published file. Files of which the collection keeps only some rows are not on the list.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from prenet_gnn.common.files import write_whole
from prenet_gnn.errors import DataError

BASE_URL = "https://raw.githubusercontent.com"
TIMEOUT_S = 30.0
COLUMNS = ("file", "sha256", "repo", "commit", "path", "licence")


@dataclass(frozen=True, slots=True)
class Source:
    """One published file.

    Attributes:
        file: Where it goes below the data folder; a name in `.gz` is packed here.
        sha256: Of the published bytes.
        repo: `owner/name` on GitHub.
        commit: Commit the file was taken from.
        path: Path in the repository.
        licence: Licence the repository states.
    """

    file: str
    sha256: str
    repo: str
    commit: str
    path: str
    licence: str

    def url(self, base: str = BASE_URL) -> str:
        """Address of the published file."""
        return f"{base}/{self.repo}/{self.commit}/{urllib.parse.quote(self.path)}"


@dataclass(frozen=True, slots=True)
class FetchReport:
    """What a fetch did: files downloaded, files that were there already, and bytes downloaded."""

    fetched: int
    present: int
    num_bytes: int


def fetch_sources(
    folder: str | Path,
    *,
    manifest: str | Path | None = None,
    base_url: str = BASE_URL,
    workers: int = 8,
    on_file: Callable[[Source], None] | None = None,
) -> FetchReport:
    """Downloads every listed file that the folder does not have; may be interrupted and repeated.

    Args:
        folder: The data folder; files go below its `raw`.
        manifest: Another list of files than the package's own `sources.csv`.
        base_url: Address of the file server.
        workers: Downloads at a time.
        on_file: Called after every file, for a progress display.

    Raises:
        DataError: The server cannot be reached, a file differs from the list, or nothing can be
            written; files fetched so far stay.
    """
    root = Path(folder).expanduser()
    sources = read_sources(manifest)
    missing = [source for source in sources if not _is_here(source, root)]
    done = 0
    with ThreadPoolExecutor(max(1, workers)) as pool:
        jobs = [pool.submit(_fetch_one, source, root, base_url) for source in missing]
        try:
            for source, job in zip(missing, jobs, strict=True):
                done += job.result()
                if on_file:
                    on_file(source)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return FetchReport(len(missing), len(sources) - len(missing), done)


def read_sources(manifest: str | Path | None = None) -> list[Source]:
    """Reads a list of published files.

    Raises:
        DataError: The list is missing, lacks a column or names a place outside the folder.
    """
    try:
        if manifest is None:
            listed = resources.files("prenet_gnn.data").joinpath("sources.csv")
            text = listed.read_text(encoding="utf-8")
        else:
            text = Path(manifest).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the list of sources {manifest} cannot be read: {error}.") from None
    return list(_sources(text.splitlines(), str(manifest or "sources.csv")))


def _sources(rows: Iterable[str], name: str) -> Iterable[Source]:
    reader = csv.DictReader(rows)
    missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
    if missing:
        raise DataError(f"{name} lacks the column {missing[0]}; it needs {', '.join(COLUMNS)}.")
    for line, row in enumerate(reader, start=2):
        source = Source(**{column: row[column] or "" for column in COLUMNS})
        parts = Path(source.file).parts
        if not parts or Path(source.file).is_absolute() or ".." in parts:
            raise DataError(f"{name} line {line}: '{source.file}' is not a path in the folder.")
        if len(source.sha256) != 64:
            raise DataError(f"{name} line {line}: '{source.sha256}' is not a sha256.")
        yield source


def _fetch_one(source: Source, root: Path, base_url: str) -> int:
    url = source.url(base_url)
    host = urllib.parse.urlsplit(url).netloc
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            content: bytes = answer.read()
    except urllib.error.HTTPError as error:
        error.close()
        raise DataError(f"{url} answers {error.code} {error.reason}.") from None
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise DataError(
            f"{host} cannot be reached ({reason}). Is this machine online? What was fetched stays; "
            "run the command again to go on."
        ) from None
    digest = hashlib.sha256(content).hexdigest()
    if digest != source.sha256:
        raise DataError(
            f"{url} is not the file it was: sha256 {digest[:12]}, expected {source.sha256[:12]}."
        )
    _write(root / source.file, content)
    return len(content)


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A fixed time in the header makes the packed file the same on every machine.
        write_whole(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}.") from None


def _is_here(source: Source, root: Path) -> bool:
    path = root / source.file
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, gzip.BadGzipFile):
        return False
    return hashlib.sha256(content).hexdigest() == source.sha256
