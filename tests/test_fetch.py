"""A small local server stands in for the public one."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import threading
from pathlib import Path

import pytest

from prenet_gnn.data import fetch
from prenet_gnn.errors import DataError


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path):
    root = tmp_path / "server"
    (root / "me/data/abc").mkdir(parents=True)
    (root / "me/data/abc/a b.csv").write_bytes(b"x,y\n1,2\n")
    (root / "me/data/abc/big.csv").write_bytes(b"x\n" * 5000)

    def handler(*args: object) -> Quiet:
        return Quiet(*args, directory=str(root))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, daemon=True)
        thread.start()
        yield root, f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join()


def write_manifest(target: Path, root: Path, **changes: str) -> Path:
    lines = ["file,sha256,repo,commit,path,licence"]
    for name, file in (("a b.csv", "raw/a.csv"), ("big.csv", "raw/deep/big.csv.gz")):
        digest = hashlib.sha256((root / "me/data/abc" / name).read_bytes()).hexdigest()
        row = {"file": file, "sha256": digest, "path": name, **changes}
        lines.append(f"{row['file']},{row['sha256']},me/data,abc,{row['path']},MIT")
    target.write_text("\n".join(lines) + "\n")
    return target


def test_fetch_downloads_verifies_and_resumes(server, tmp_path):
    root, url = server
    manifest, target = write_manifest(tmp_path / "list.csv", root), tmp_path / "data"
    report = fetch.fetch_sources(target, manifest=manifest, base_url=url)
    assert (report.fetched, report.present, report.num_bytes) == (2, 0, 10_008)
    assert (target / "raw/a.csv").read_bytes() == b"x,y\n1,2\n"
    assert gzip.decompress((target / "raw/deep/big.csv.gz").read_bytes()) == b"x\n" * 5000
    (target / "raw/a.csv").write_bytes(b"torn")
    (target / "raw/deep/big.csv.gz").write_bytes(b"torn")
    report = fetch.fetch_sources(target, manifest=manifest, base_url=url)
    assert (report.fetched, report.present) == (2, 0)
    report = fetch.fetch_sources(target, manifest=manifest, base_url=url)
    assert (report.fetched, report.present) == (0, 2)


def test_fetch_refuses_changed_and_missing_files(server, tmp_path):
    root, url = server
    target = tmp_path / "data"
    manifest = write_manifest(tmp_path / "list.csv", root, sha256="0" * 64)
    with pytest.raises(DataError, match="is not the file it was"):
        fetch.fetch_sources(target, manifest=manifest, base_url=url)
    manifest = write_manifest(tmp_path / "list.csv", root, path="gone.csv")
    with pytest.raises(DataError, match="answers 404"):
        fetch.fetch_sources(target, manifest=manifest, base_url=url)
    assert not [path for path in target.rglob("*") if path.is_file()]


# A refused connection leaves its socket to the garbage collector of http.client.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_fetch_says_when_there_is_no_network(server, tmp_path):
    root, _ = server
    manifest = write_manifest(tmp_path / "list.csv", root)
    with pytest.raises(DataError, match=r"127\.0\.0\.1:9 cannot be reached .* online\?"):
        fetch.fetch_sources(tmp_path / "data", manifest=manifest, base_url="http://127.0.0.1:9")


@pytest.mark.parametrize("file", ["../up.csv", "/etc/x.csv", "raw/../../x.csv", ""])
def test_fetch_writes_nothing_outside_its_folder(server, tmp_path, file):
    root, _ = server
    manifest = write_manifest(tmp_path / "list.csv", root, file=file)
    with pytest.raises(DataError, match=r"line 2.*not a path in the folder"):
        fetch.read_sources(manifest)


def test_the_list_of_sources_is_complete():
    sources = fetch.read_sources()
    assert len(sources) > 1000
    assert len({source.file for source in sources}) == len(sources)
    for source in sources:
        assert source.file.startswith("raw/")
        assert source.licence
        assert len(source.commit) == 40
        assert source.url().startswith("https://raw.githubusercontent.com/")


def test_the_list_of_sources_matches_the_collection(data_dir):
    for source in fetch.read_sources()[::40]:
        content = (data_dir / source.file).read_bytes()
        if source.file.endswith(".gz"):
            content = gzip.decompress(content)
        assert hashlib.sha256(content).hexdigest() == source.sha256, source.file


def test_a_broken_list_of_sources_is_an_error(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        fetch.read_sources(tmp_path / "none.csv")
    (tmp_path / "list.csv").write_text("file,sha256\n")
    with pytest.raises(DataError, match="lacks the column repo"):
        fetch.read_sources(tmp_path / "list.csv")
    (tmp_path / "list.csv").write_text("file,sha256,repo,commit,path,licence\na,12,r,c,p,MIT\n")
    with pytest.raises(DataError, match="line 2: '12' is not a sha256"):
        fetch.read_sources(tmp_path / "list.csv")
