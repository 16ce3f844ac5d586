"""Unpacks tar and zip files without trusting them: every member is looked at here, whatever Python's own filters do.

`tarfile`'s filter "data" can be led out of its folder in Pythons below 3.11.13 and 3.12.11, and neither it nor
`zipfile` stops an archive that grows without end. So only plain files and folders are taken, by names that stay inside,
and what comes out is counted while it comes.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol, Self

from fedrelay.data.locate import UNFINISHED
from fedrelay.errors import BadInput, RunFailed

CHUNK = 1 << 18
RATIO = 100
"""How much larger than its archive a data set may be if nothing else is known of it."""
SMALL = 64 << 20
"""Bytes that do no harm, whatever the ratio."""
MOST_MEMBERS = 1_000_000
DEEPEST = 30
OTHER = "which is a link, a device or something else"
SCRATCH = ".unpacking-"
DAMAGED: tuple[type[Exception], ...] = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, LookupError, ValueError, RuntimeError, MemoryError, OverflowError, OSError),
)
"""What reading a damaged archive can end in; gzip and bz2 raise an OSError, without the number of a disk's."""
CLASHES = (FileExistsError, NotADirectoryError, IsADirectoryError)
"""A member that is a file and a folder."""
COMPRESSIONS: dict[bytes, Callable[[Path], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
"""By the first bytes of a file."""


class Readable(Protocol):
    """What the content of a member is read from."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class Member:
    """A member of an archive, and what to read it from; a folder has no content."""

    name: str
    content: Readable | None = None


class Budget:
    """Counts what comes out of an archive, and refuses more than there should be."""

    def __init__(self, archive: Path, most: int | None) -> None:
        self.archive, self.bytes, self.members = archive, 0, 0
        self.most = max(SMALL, RATIO * archive.stat().st_size) if most is None else most

    def spend(self, count: int) -> None:
        self.bytes += count
        if self.bytes > self.most:
            self.refuse(f"at most {self.most:,} bytes when unpacked", "more")

    def member(self) -> None:
        self.members += 1
        if self.members > MOST_MEMBERS:
            self.refuse(f"at most {MOST_MEMBERS:,} members", "more")

    def refuse(self, expected: str, found: str) -> None:
        raise BadInput(f"{self.archive}: expected {expected}, found {found}; nothing was unpacked")


class Counted:
    """A stream of which every byte is counted; also a header of gigabytes, which tarfile would read whole."""

    def __init__(self, stream: IO[bytes], budget: Budget) -> None:
        self.stream, self.budget = stream, budget

    def read(self, size: int = CHUNK) -> bytes:
        data = self.stream.read(min(size, CHUNK))
        self.budget.spend(len(data))
        return data


class Header(tarfile.TarInfo):
    """A member's header; tarfile takes a damaged one for the end of the archive, and what follows would be lost."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        if not any(buf) and len(buf) == tarfile.BLOCKSIZE:
            return super().frombuf(buf, encoding, errors)  # the end, as it should be
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from None


def unpack(archive: Path, folder: Path, *, most: int | None = None) -> None:
    """Unpack a tar or zip file whole or not at all; what is refused or damaged leaves nothing behind.

    Args:
        archive: The file.
        folder: Where its members go; what is there already is kept, but for files that the archive has too.
        most: The number of bytes that it may have when it is unpacked. Default: `RATIO` times its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=f"{SCRATCH}{archive.name}-") as scratch:
            _extract_checked(archive, Path(scratch), Budget(archive, most))
            if hasattr(os, "sync"):
                os.sync()  # names are given only to what is on disk; once, as there may be 100,000 files
            _move(Path(scratch), folder)
    except OSError as error:
        raise RunFailed(f"{archive} cannot be unpacked into {folder} ({error.strerror or error})") from error


def sweep(archive: Path, folder: Path) -> None:
    """Remove what a process that was killed while it unpacked this archive has left; nobody may be unpacking it now."""
    for left in folder.glob(f"{SCRATCH}*"):
        if left.name.startswith(f"{SCRATCH}{archive.name}-") and left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)


def _extract_checked(archive: Path, scratch: Path, budget: Budget) -> None:
    """Extract; whatever a damaged archive ends in is told as what it is."""
    try:
        _extract(archive, scratch, budget)
    except BadInput:
        raise
    except DAMAGED as error:
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, CLASHES):
            raise  # the disk, not the archive
        reason = str(error) or type(error).__name__
        raise BadInput(f"{archive}: expected a whole tar or zip file, found a damaged one ({reason:.300})") from None


def _extract(archive: Path, scratch: Path, budget: Budget) -> None:
    members = _zipped if zipfile.is_zipfile(archive) else _tarred
    for member in members(archive, budget):
        budget.member()
        place = scratch / _inside(archive, member.name)
        if member.content is None:
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            budget.refuse("every member once", f"{member.name[:200]!r} twice")
        with place.open("xb") as file:
            while data := member.content.read(CHUNK):
                file.write(data)


def _inside(archive: Path, name: str) -> PurePosixPath:
    """The path of a member, if it stays inside the folder on every system."""
    path = PurePosixPath(name.replace("\\", "/"))
    strange = len(path.parts) > DEEPEST or any(letter == ":" or ord(letter) < 32 for letter in name)
    if path.is_absolute() or ".." in path.parts or strange:
        raise BadInput(f"{archive}: expected members inside the folder, found {name[:200]!r}; nothing was unpacked")
    return path


def _tarred(archive: Path, budget: Budget) -> Iterator[Member]:
    with _decompressed(archive) as raw:
        stream: Any = Counted(raw, budget)
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=Header) as tar:  # as it comes: nothing is read twice
            for header in tar:
                if not (header.isreg() or header.isdir()) or header.issparse():
                    budget.refuse("plain files and folders", f"{header.name[:200]!r}, {OTHER}")
                yield Member(header.name, tar.extractfile(header) if header.isreg() else None)
        while stream.read():  # compressed files have their sums at the end
            pass


def _decompressed(archive: Path) -> IO[bytes]:
    with archive.open("rb") as file:
        start = file.read(8)
    for first, opened in COMPRESSIONS.items():
        if start.startswith(first):
            stream: IO[bytes] = opened(archive)
            return stream
    return archive.open("rb")


def _zipped(archive: Path, budget: Budget) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as opened:
        declared = sum(entry.file_size for entry in opened.infolist())
        if declared > budget.most:  # before a byte is written; and what does come is counted, whatever was declared
            budget.refuse(f"at most {budget.most:,} bytes when unpacked", f"{declared:,}")
        for entry in opened.infolist():
            if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
                budget.refuse("plain files and folders", f"{entry.filename[:200]!r}, {OTHER}")
            if entry.is_dir():
                yield Member(entry.filename)
            else:
                with opened.open(entry) as content:
                    yield Member(entry.filename, Counted(content, budget))


def _move(source: Path, target: Path) -> None:
    """Everything of one folder into another: what is new in one step, what is there already file by file.

    A folder that is filled file by file has a mark meanwhile, so that it is not taken for whole if this is cut off.
    """
    for entry in sorted(source.iterdir()):
        place = target / entry.name
        if entry.is_dir() and place.is_dir() and not place.is_symlink():
            mark = place / UNFINISHED
            mark.unlink(missing_ok=True)  # also a link that somebody has put there: it is not followed
            mark.touch(exist_ok=False)
            _move(entry, place)
            (place / UNFINISHED).unlink(missing_ok=True)
        elif place.is_dir():
            raise BadInput(f"{place}: expected a file or nothing, found a folder")
        else:
            entry.replace(place)
