"""Fetches data sets from their publishers: checked, resumed where it stopped, unpacked whole or not at all.

Not pooch 1.9, which begins a file anew when the connection breaks off (some of ours are gigabytes), brings requests
with it, and unpacks member by member into the final folder, so that a damaged archive leaves half of itself there.
"""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from fedrelay.data.archives import sweep, unpack
from fedrelay.data.locate import data_folder, ways
from fedrelay.data.sources import FileSource, Remote, named
from fedrelay.errors import BadInput, RunFailed
from fedrelay.system import files
from fedrelay.system.console import PlainConsole

CHUNK = 1 << 18
PATIENCE = 30.0  # seconds without a byte
TRIES = 4
LARGEST = 16 << 30
"""Bytes of a download whose size is not published; the largest of ours (Stack Overflow) has a quarter of it."""
BROKEN = (urllib.error.URLError, http.client.HTTPException, OSError)


def get(name: str, data_dir: Path | str | None = None, *, console: Console | None = None) -> Path:
    """Download a data set into the data folder, and say where that is; what is there already is left alone."""
    return get_source(named(name), data_folder(data_dir), console=console)


def get_source(source: FileSource, folder: Path, *, console: Console | None = None) -> Path:
    """Download the files of this source; without a network, or where nobody may be asked, say what to put where."""
    wanted = missing(source, folder)
    if not wanted and source.present(folder):
        return folder
    if not wanted:
        raise BadInput(by_hand(source, folder, "its publisher gives no address that a program may fetch it from"))
    try:
        with _alone(source, folder), _progress(console) as progress:
            for remote in missing(source, folder):  # another process may have brought them meanwhile
                _get_file(remote, folder, progress)
    except BROKEN as error:
        raise RunFailed(by_hand(source, folder, f"the download failed ({_reason(error)})")) from error
    if not source.present(folder):
        raise RunFailed(by_hand(source, folder, "what was downloaded does not hold its files"))
    return folder


def missing(source: FileSource, folder: Path) -> list[Remote]:
    """What is to be fetched. An archive that still lies there is too: it was not unpacked to its end."""
    if not source.present(folder):
        return list(source.remotes)
    there = [(remote, (folder / remote.to).exists()) for remote in source.remotes]
    return [remote for remote, here in there if (remote.unpack is not None and here) or (remote.extra and not here)]


@contextmanager
def _alone(source: FileSource, folder: Path) -> Iterator[None]:
    """Nobody else may fetch this data set meanwhile; the lock ends with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f".fedrelay-{source.name}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BadInput(f"{source.name} is being fetched into {folder} by another process: wait for it") from None
    try:
        yield
    finally:
        lock.release()


def by_hand(source: FileSource, folder: Path, why: str) -> str:
    """Which files to put where."""
    lines = [f"{source.name} cannot be fetched: {why}."]
    if source.remotes:
        lines.append("What has come so far is kept: run the same command again, or fetch these files yourself:")
        lines += [_named(list(some), folder) for _, some in groupby(source.remotes, _site)]
    else:
        lines.append(f"Get it from {source.page}")
    lines += ["In the end there must be one of:", ways(folder, source.layouts)]
    return "\n".join(lines)


def _site(remote: Remote) -> tuple[str, str]:
    """Where a file comes from, and the folder it goes to."""
    return remote.url.rpartition("/")[0], remote.to.rpartition("/")[0]


def _named(remotes: list[Remote], folder: Path) -> str:
    """Files of one place: several in few words, as a message is not to be longer than people read."""
    site, place = _site(remotes[0])
    if len(remotes) > 1:
        names = ", ".join(remote.url.rpartition("/")[2] for remote in remotes)
        return f"  from {site}/ to {folder / place}: {names}"
    (remote,) = remotes
    unpacked = f", and unpack it into {folder / remote.unpack}" if remote.unpack is not None else ""
    return f"  {remote.url}\n    to {folder / remote.to} ({remote.checksum or 'no published checksum known'}){unpacked}"


def _reason(error: BaseException) -> str:
    return str(getattr(error, "reason", "") or error or type(error).__name__)


def _get_file(remote: Remote, folder: Path, progress: Progress) -> None:
    target = folder / remote.to
    if not target.exists():
        fetch(remote.url, target, checksum=remote.checksum, size=remote.size, progress=progress)
    elif remote.checksum is not None and digest(target, remote.checksum) != remote.checksum:
        raise BadInput(
            f"{target}: expected {remote.checksum}, found {digest(target, remote.checksum)}: remove it first"
        )
    if remote.unpack is not None:
        sweep(target, folder / remote.unpack)
        unpack(target, folder / remote.unpack, most=remote.unpacked)
        target.unlink()


def fetch(
    url: str, target: Path, *, checksum: str | None = None, size: int | None = None, progress: Progress | None = None
) -> None:
    """Download one file. It is called `target` only when it is whole and its size and checksum are right.

    Until then it is target.part, which a later call continues. A file that is larger than its publisher says is not
    taken in: it would fill the disk before its checksum is known.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    if part.is_symlink():
        raise BadInput(f"{part} is a link, through which nothing is written: remove it, then try again")
    bar = progress.add_task(target.name, total=None) if progress is not None else None
    for tries in range(1, TRIES + 1):
        try:
            _continue(url, part, size, progress=progress, bar=bar)
            break
        except BROKEN as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500  # asking again changes nothing
            if refused or tries == TRIES:
                raise
            time.sleep(0.1 * 2**tries)
    if checksum is not None:
        found = digest(part, checksum)
        if found != checksum:
            count = part.stat().st_size
            _discard(part)
            raise RunFailed(f"{url}: expected {checksum}, found {found} ({count} bytes); it was thrown away")
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


def _continue(
    url: str, part: Path, expected: int | None, *, progress: Progress | None = None, bar: TaskID | None = None
) -> None:
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
        _append(response, part, have, LARGEST if expected is None else expected, progress=progress, bar=bar)


def _remember(part: Path, version: str | None) -> None:
    if version is None or version.startswith("W/"):  # a weak one does not promise the same bytes
        _stamp(part).unlink(missing_ok=True)
    else:
        files.write(_stamp(part), version.encode())


def _append(
    response: http.client.HTTPResponse,
    part: Path,
    have: int,
    most: int,
    *,
    progress: Progress | None,
    bar: TaskID | None,
) -> None:
    length = response.headers.get("Content-Length")
    total = None if length is None else have + int(length)
    with files.continued(part) as stream:
        stream.truncate(have)
        stream.seek(have)
        while chunk := response.read(CHUNK):
            if stream.tell() + len(chunk) > most:
                _discard(part)
                raise RunFailed(f"{response.url}: expected {most:,} bytes, found more; it was thrown away")
            stream.write(chunk)
            if progress is not None and bar is not None:
                progress.update(bar, completed=stream.tell(), total=total)
        size = stream.tell()
    if total is not None and size < total:
        raise ConnectionError(f"the connection ended after {size} of {total} bytes")


@contextmanager
def _progress(console: Console | None) -> Iterator[Progress]:
    said = TextColumn("{task.description}", markup=False)
    columns = (said, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(compact=True))
    console = console or PlainConsole(stderr=True)
    with Progress(*columns, console=console, disable=console.quiet) as progress:
        yield progress
