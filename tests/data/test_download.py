from __future__ import annotations

import hashlib
import http.server
import io
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from archive_files import tar_of, zip_of
from filelock import FileLock
from needs import posix
from rich.console import Console

from fedrelay.data import download
from fedrelay.data.download import fetch, get_source
from fedrelay.data.locate import Layout
from fedrelay.data.sources import FILES, FileSource, Remote
from fedrelay.errors import BadInput, RunFailed

DATA = bytes(range(256)) * 4096  # 1 MiB
SHA = f"sha256:{hashlib.sha256(DATA).hexdigest()}"


@dataclass
class Site:
    """A publisher on this machine. It can break off, and it can refuse to send parts."""

    files: dict[str, bytes] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    break_after: list[int] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)
    ranges: bool = True
    asked: list[str | None] = field(default_factory=list)
    url: str = ""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def do_GET(self) -> None:
        site, name = self.site, self.path.lstrip("/")
        wanted = self.headers.get("Range")
        site.asked.append(wanted)
        if site.failures:
            return self._answer(site.failures.pop(0), b"")
        if name not in site.files:
            return self._answer(404, b"")
        data, version = site.files[name], site.versions.get(name)
        condition = self.headers.get("If-Range")
        start = 0
        if wanted and site.ranges and condition in (None, version):
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(data):
                return self._answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        headers = {} if version is None else {"ETag": version}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        return self._answer(206 if start else 200, data[start:], headers)

    def _answer(self, code: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if data and self.site.break_after:
            self.wfile.write(data[: self.site.break_after.pop(0)])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        else:
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    handler = type("Handler", (_Handler,), {"site": site})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(download.time, "sleep", lambda seconds: None)


def source_of(*remotes: Remote, files: tuple[str, ...] = ("file.bin",)) -> FileSource:
    return FileSource(
        "example",
        "an example",
        10,
        reader=lambda folder: None,
        layouts=(Layout("files", "place", files),),
        page="http://example.org",
        licence="none",
        citation="none",
        remotes=remotes,
    )


def quiet() -> Console:
    return Console(file=io.StringIO())


def test_a_file_is_fetched_whole_and_checked(site, tmp_path):
    site.files["a"] = DATA
    fetch(f"{site.url}/a", tmp_path / "new" / "a", checksum=SHA)
    assert (tmp_path / "new" / "a").read_bytes() == DATA
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a"]
    assert site.asked == [None]


def test_a_partial_file_is_continued_where_it_stopped(site, tmp_path):
    site.files["a"] = DATA
    (tmp_path / "a.part").write_bytes(DATA[:1000])
    fetch(f"{site.url}/a", tmp_path / "a", checksum=SHA)
    assert (tmp_path / "a").read_bytes() == DATA
    assert site.asked == ["bytes=1000-"]


def test_a_connection_that_breaks_off_is_taken_up_again(site, tmp_path):
    site.files["a"] = DATA
    site.break_after = [300_000, 400_000]
    fetch(f"{site.url}/a", tmp_path / "a", checksum=SHA)
    assert (tmp_path / "a").read_bytes() == DATA
    assert len(site.asked) == 3
    first, second = (int(asked.removeprefix("bytes=").removesuffix("-")) for asked in site.asked[1:])
    assert 0 < first <= 300_000 < second <= 700_000


def test_when_it_keeps_breaking_off_what_has_come_is_kept_for_the_next_time(site, tmp_path):
    site.files["a"] = DATA
    site.break_after = [100_000] * download.TRIES
    with pytest.raises(OSError, match="connection ended"):
        fetch(f"{site.url}/a", tmp_path / "a", checksum=SHA)
    assert not (tmp_path / "a").exists()
    kept = (tmp_path / "a.part").stat().st_size
    assert kept > 0
    fetch(f"{site.url}/a", tmp_path / "a", checksum=SHA)
    assert site.asked[-1] == f"bytes={kept}-"
    assert (tmp_path / "a").read_bytes() == DATA


def test_a_server_that_sends_no_parts_sends_everything_again(site, tmp_path):
    site.files["a"] = DATA
    site.ranges = False
    (tmp_path / "a.part").write_bytes(b"x" * 2_000_000)
    fetch(f"{site.url}/a", tmp_path / "a", checksum=SHA)
    assert (tmp_path / "a").read_bytes() == DATA


def test_a_part_of_an_older_version_is_not_mixed_with_the_new_one(site, tmp_path):
    site.files["a"], site.versions["a"] = DATA, '"old"'
    site.break_after = [100_000] * download.TRIES
    with pytest.raises(OSError, match="connection ended"):
        fetch(f"{site.url}/a", tmp_path / "a")
    site.files["a"], site.versions["a"] = DATA[::-1], '"new"'
    fetch(f"{site.url}/a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == DATA[::-1]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_part_that_is_already_whole_is_kept(site, tmp_path):
    site.files["a"] = DATA
    (tmp_path / "a.part").write_bytes(DATA)
    fetch(f"{site.url}/a", tmp_path / "a", checksum=SHA)
    assert (tmp_path / "a").read_bytes() == DATA


def test_a_part_longer_than_the_file_is_thrown_away(site, tmp_path):
    site.files["a"] = DATA
    (tmp_path / "a.part").write_bytes(DATA + b"more")
    fetch(f"{site.url}/a", tmp_path / "a", checksum=SHA)
    assert (tmp_path / "a").read_bytes() == DATA


def test_a_wrong_checksum_is_an_error_and_the_file_is_thrown_away(site, tmp_path):
    site.files["a"] = DATA[:-1] + b"!"
    with pytest.raises(RunFailed, match=rf"/a: expected {SHA}, found sha256:.* \({len(DATA)} bytes\)"):
        fetch(f"{site.url}/a", tmp_path / "a", checksum=SHA)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_fails_for_a_moment_is_asked_again(site, tmp_path):
    site.files["a"], site.failures = DATA, [503, 500]
    fetch(f"{site.url}/a", tmp_path / "a", checksum=SHA)
    assert (tmp_path / "a").read_bytes() == DATA


def test_a_data_set_is_fetched_unpacked_and_then_left_alone(site, tmp_path):
    site.files["set.tar.gz"] = tar_of({"place/file.bin": DATA})
    checksum = f"md5:{hashlib.md5(site.files['set.tar.gz']).hexdigest()}"
    source = source_of(Remote(f"{site.url}/set.tar.gz", "set.tar.gz", checksum, unpack="."))
    assert get_source(source, tmp_path, console=quiet()) == tmp_path
    assert (tmp_path / "place" / "file.bin").read_bytes() == DATA
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == ["place"]
    get_source(source, tmp_path, console=quiet())
    assert len(site.asked) == 1


def test_progress_is_shown(site, tmp_path):
    site.files["file.bin"] = DATA
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    get_source(source_of(Remote(f"{site.url}/file.bin", "place/file.bin", SHA)), tmp_path, console=console)
    assert "file.bin" in console.file.getvalue()
    assert "1.0/1.0 MB" in console.file.getvalue()


def test_what_is_nice_to_have_is_fetched_even_when_the_rest_is_there(site, tmp_path):
    site.files["more"] = b"more"
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "file.bin").write_bytes(b"mine")
    remotes = (
        Remote(f"{site.url}/file.bin", "place/file.bin", None),
        Remote(f"{site.url}/more", "place/more", None, extra=True),
    )
    get_source(source_of(*remotes), tmp_path, console=quiet())
    assert (tmp_path / "place" / "more").read_bytes() == b"more"
    assert (tmp_path / "place" / "file.bin").read_bytes() == b"mine"


def test_without_a_network_it_says_which_files_to_put_where(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    remote = Remote(f"http://127.0.0.1:{port}/file.bin", "place/file.bin", SHA)
    with pytest.raises(RunFailed, match="example cannot be fetched: the download failed") as failed:
        get_source(source_of(remote), tmp_path, console=quiet())
    message = str(failed.value)
    assert f"http://127.0.0.1:{port}/file.bin" in message
    assert f"to {tmp_path / 'place' / 'file.bin'} ({SHA})" in message
    assert f"{tmp_path}/place/ with file.bin" in message


def test_a_file_that_is_gone_from_its_publisher_is_told_at_once(site, tmp_path):
    with pytest.raises(RunFailed, match=r"the download failed .*Not Found"):
        get_source(source_of(Remote(f"{site.url}/gone", "place/file.bin", None)), tmp_path, console=quiet())
    assert len(site.asked) == 1


def test_a_data_set_without_an_address_is_told_how_to_get_by_hand(tmp_path):
    with pytest.raises(BadInput, match="pacs cannot be fetched: its publisher gives no address") as refused:
        get_source(FILES["pacs"], tmp_path)
    assert FILES["pacs"].page in str(refused.value)
    assert f"{tmp_path}/PACS/ with art_painting, cartoon, photo, sketch" in str(refused.value)


def test_an_archive_that_does_not_hold_the_files_is_an_error(site, tmp_path):
    site.files["set.zip"] = zip_of({"other/file.bin": b"x"})
    source = source_of(Remote(f"{site.url}/set.zip", "set.zip", None, unpack="."))
    with pytest.raises(RunFailed, match="what was downloaded does not hold its files"):
        get_source(source, tmp_path, console=quiet())


def test_a_wrong_archive_that_is_already_there_is_named(site, tmp_path):
    (tmp_path / "set.zip").write_bytes(b"something else")
    source = source_of(Remote(f"{site.url}/set.zip", "set.zip", SHA, unpack="."))
    with pytest.raises(BadInput, match=rf"set.zip: expected {SHA}, found sha256:"):
        get_source(source, tmp_path, console=quiet())
    assert site.asked == []


def test_get_looks_in_the_data_folder(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("FEDRELAY_DATA", str(tmp_path))
    (tmp_path / "shakespeare").mkdir()
    (tmp_path / "shakespeare" / "input.txt").write_text("here")
    assert download.get("shakespeare") == tmp_path


def test_more_bytes_than_the_publisher_says_are_not_taken_in(site, tmp_path):
    site.files["a"] = DATA
    with pytest.raises(RunFailed, match=r"/a: expected 1,000 bytes, found more; it was thrown away"):
        fetch(f"{site.url}/a", tmp_path / "a", checksum=SHA, size=1000)
    assert list(tmp_path.iterdir()) == []
    fetch(f"{site.url}/a", tmp_path / "a", checksum=SHA, size=len(DATA))
    assert (tmp_path / "a").read_bytes() == DATA


@posix
@pytest.mark.parametrize("content", [b"", b"of somebody"])
def test_nothing_is_written_through_a_planted_link(site, tmp_path, content):
    site.files["a"], site.versions["a"] = DATA, '"one"'
    folder, outside = tmp_path / "data", tmp_path / "outside"
    folder.mkdir()
    outside.write_bytes(content)
    (folder / "a.part.stamp").symlink_to(outside)
    fetch(f"{site.url}/a", folder / "a", checksum=SHA)
    (folder / "b.part").symlink_to(outside)
    with pytest.raises(BadInput, match=r"b.part is a link, through which nothing is written: remove it"):
        fetch(f"{site.url}/a", folder / "b", checksum=SHA)
    assert outside.read_bytes() == content


def test_every_file_of_every_publisher_has_a_sha256():
    remotes = [remote for source in FILES.values() for remote in source.remotes]
    assert len(remotes) > 15
    assert [r.url for r in remotes if not (r.checksum or "").startswith("sha256:") or len(r.checksum) != 71] == []
    assert {r.url.partition("/housenumbers")[0] for r in remotes if not r.url.startswith("https:")} == {
        "http://ufldl.stanford.edu"
    }


def test_unpacking_that_was_killed_is_done_again_and_what_it_left_is_removed(site, tmp_path):
    site.files["set.zip"] = zip_of({"place/file.bin": DATA, "place/other.bin": b"the last"})
    source = source_of(Remote(f"{site.url}/set.zip", "set.zip", None, unpack="."))
    # As it is after a kill in the middle: the archive, a part of what it holds, and the folder it was unpacked in.
    (tmp_path / "set.zip").write_bytes(site.files["set.zip"])
    (tmp_path / ".unpacking-set.zip-abc").mkdir()
    (tmp_path / ".unpacking-set.zip-abc" / "half").write_bytes(b"x")
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "file.bin").write_bytes(DATA)
    get_source(source, tmp_path, console=quiet())
    assert (tmp_path / "place" / "other.bin").read_bytes() == b"the last"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".fedrelay-example.lock", "place"]
    assert site.asked == []  # the archive was there


def test_a_data_set_is_fetched_by_one_process_at_a_time(site, tmp_path):
    source = source_of(Remote(f"{site.url}/a", "place/file.bin", None))
    with FileLock(tmp_path / ".fedrelay-example.lock"), pytest.raises(BadInput, match="by another process: wait"):
        get_source(source, tmp_path, console=quiet())


def test_no_message_about_files_to_fetch_is_too_long_to_read(tmp_path):
    for source in FILES.values():
        assert len(download.by_hand(source, Path("/home/somebody/.cache/fedrelay/data"), "there is no network")) < 1000
