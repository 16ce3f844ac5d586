"""Fetches data sets from their publishers: checked, resumed where it stopped, unpacked without leaving the folder.

Not pooch 1.9, which begins a file anew when the connection breaks off (some of ours are gigabytes), brings requests
with it, and unpacks member by member into the final folder, so that a damaged archive leaves half of itself there.
"""

from __future__ import annotations

import hashlib
import http.client
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from fedrelay import files
from fedrelay.data.locate import data_folder
from fedrelay.data.sources import FileSource, Remote, named
from fedrelay.errors import BadInput, RunFailed

CHUNK = 1 << 18
PATIENCE = 30.0  # seconds without a byte
TRIES = 4
BROKEN = (urllib.error.URLError, http.client.HTTPException, OSError)


def get(name: str, data_dir: Path | str | None = None, *, console: Console | None = None) -> Path:
    """Download a data set into the data folder, and say where that is; what is there already is left alone."""
    return get_source(named(name), data_folder(data_dir), console=console)


def get_source(source: FileSource, folder: Path, *, console: Console | None = None) -> Path:
    """Download the files of this source; without a network, or where nobody may be asked, say what to put where."""
    wanted = [r for r in source.remotes if r.extra and not (folder / r.to).exists()]
    if not source.present(folder):
        wanted = list(source.remotes)
    elif not wanted:
        return folder
    if not wanted:
        raise BadInput(by_hand(source, folder, "its publisher gives no address that a program may fetch it from"))
    try:
        with _progress(console) as progress:
            for remote in wanted:
                _get_file(remote, folder, progress)
    except BROKEN as error:
        raise RunFailed(by_hand(source, folder, f"the download failed ({_reason(error)})")) from error
    if not source.present(folder):
        raise RunFailed(by_hand(source, folder, "what was downloaded does not hold its files"))
    return folder


def by_hand(source: FileSource, folder: Path, why: str) -> str:
    """Which files to put where."""
    lines = [f"{source.name} cannot be fetched: {why}."]
    if source.remotes:
        lines.append("What has come so far is kept: run the same command again, or fetch these files yourself:")
        lines += [
            f"  {remote.url}\n    to {folder / remote.to}{_afterwards(remote, folder)}" for remote in source.remotes
        ]
    else:
        lines.append(f"Get it from {source.page}")
    lines.append("In the end there must be one of:")
    lines += [f"  {folder}/{layout}" for layout in source.layouts]
    return "\n".join(lines)


def _afterwards(remote: Remote, folder: Path) -> str:
    unpack = f", and unpack it into {folder / remote.unpack}" if remote.unpack is not None else ""
    return f" ({remote.checksum or 'no published checksum known'}){unpack}"


def _reason(error: BaseException) -> str:
    return str(getattr(error, "reason", "") or error or type(error).__name__)


def _get_file(remote: Remote, folder: Path, progress: Progress) -> None:
    target = folder / remote.to
    if not target.exists():
        fetch(remote.url, target, checksum=remote.checksum, progress=progress)
    elif remote.checksum is not None and digest(target, remote.checksum) != remote.checksum:
        raise BadInput(
            f"{target}: expected {remote.checksum}, found {digest(target, remote.checksum)}: remove it first"
        )
    if remote.unpack is not None:
        unpack(target, folder / remote.unpack)
        target.unlink()


def fetch(url: str, target: Path, *, checksum: str | None = None, progress: Progress | None = None) -> None:
    """Download one file. It is called `target` only when it is whole and its checksum is right.

    Until then it is target.part, which a later call continues.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    bar = progress.add_task(target.name, total=None) if progress is not None else None
    for tries in range(1, TRIES + 1):
        try:
            _continue(url, part, progress, bar)
            break
        except BROKEN as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500  # asking again changes nothing
            if refused or tries == TRIES:
                raise
            time.sleep(0.1 * 2**tries)
    if checksum is not None:
        found = digest(part, checksum)
        if found != checksum:
            size = part.stat().st_size
            _discard(part)
            raise RunFailed(f"{url}: expected {checksum}, found {found} ({size} bytes); it was thrown away")
    files.publish(part, target)
    _stamp(part).unlink(missing_ok=True)


def digest(path: Path, like: str) -> str:
    """The checksum of a file, of the same kind as `like` ("md5:…", "sha256:…")."""
    kind = like.partition(":")[0]
    with path.open("rb") as stream:
        return f"{kind}:{hashlib.file_digest(stream, kind).hexdigest()}"


def _stamp(part: Path) -> Path:
    """The file that remembers which version of the remote file a part is of."""
    return part.with_name(part.name + ".stamp")


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _stamp(part).unlink(missing_ok=True)


def _continue(url: str, part: Path, progress: Progress | None, bar: TaskID | None) -> None:
    """Ask for what is missing of `part` and append it; a server that sends everything again overwrites it."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", "User-Agent": "fedrelay"})
    if have:
        request.add_header("Range", f"bytes={have}-")
        if _stamp(part).exists():
            request.add_header("If-Range", _stamp(part).read_text())
    try:
        response = urllib.request.urlopen(request, timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # there is nothing after what we have: it is whole, or it is another file
            error.close()
            if error.headers.get("Content-Range", "").endswith(f"/{have}"):
                return
            _discard(part)
            raise ConnectionError(f"{part.name} did not belong to {url}; it was thrown away") from None
        raise
    with response:
        if response.status != 206:
            have = 0
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            _discard(part)
            raise ConnectionError(f"{url} sent another part than was asked for")
        _remember(part, response.headers.get("ETag") or response.headers.get("Last-Modified"))
        _append(response, part, have, progress, bar)


def _remember(part: Path, version: str | None) -> None:
    if version is None or version.startswith("W/"):  # a weak one does not promise the same bytes
        _stamp(part).unlink(missing_ok=True)
    else:
        _stamp(part).write_text(version)


def _append(
    response: http.client.HTTPResponse, part: Path, have: int, progress: Progress | None, bar: TaskID | None
) -> None:
    length = response.headers.get("Content-Length")
    total = None if length is None else have + int(length)
    with part.open("r+b" if have else "wb") as stream:
        stream.seek(have)
        while chunk := response.read(CHUNK):
            stream.write(chunk)
            if progress is not None and bar is not None:
                progress.update(bar, completed=stream.tell(), total=total)
        size = stream.tell()
    if total is not None and size < total:
        raise ConnectionError(f"the connection ended after {size} of {total} bytes")


@contextmanager
def _progress(console: Console | None) -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console or Console(stderr=True)) as progress:
        yield progress


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar or zip file. A member that would leave the folder is refused, and then nothing is unpacked."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".unpacking-") as scratch:
        try:
            if zipfile.is_zipfile(archive):
                _unzip(archive, Path(scratch))
            else:
                with tarfile.open(archive) as tar:
                    tar.extractall(scratch, filter="data")
        except tarfile.FilterError as error:
            raise BadInput(
                f"{archive}: expected members inside the folder, found one that leaves it ({error})"
            ) from None
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, RuntimeError) as error:
            raise BadInput(f"{archive}: expected a whole tar or zip file, found a damaged one ({error})") from None
        _move(Path(scratch), folder)


def _unzip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            name = PurePosixPath(member.filename.replace("\\", "/"))
            if name.is_absolute() or ".." in name.parts or ":" in "".join(name.parts[:1]):
                raise BadInput(f"{archive}: expected members inside the folder, found {member.filename!r}")
        opened.extractall(folder)


def _move(source: Path, target: Path) -> None:
    """Everything of one folder into another: what is new in one step, what is there already file by file."""
    for entry in sorted(source.iterdir()):
        place = target / entry.name
        if entry.is_dir() and place.is_dir():
            _move(entry, place)
        else:
            if place.is_dir():
                raise BadInput(f"{place}: expected a file or nothing, found a folder")
            entry.replace(place)
