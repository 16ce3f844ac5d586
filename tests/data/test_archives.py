from __future__ import annotations

import errno
import io
import os
import random
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from archive_files import tar_of, tar_with, zip_of

from fedrelay.data import archives
from fedrelay.data.archives import unpack
from fedrelay.data.locate import Layout
from fedrelay.errors import BadInput, RunFailed

DATA = random.Random(0).randbytes(200_000)


@pytest.fixture(autouse=True)
def in_memory(monkeypatch):
    """The whole machine's disks are not made to write for a test."""
    monkeypatch.setattr(archives.os, "sync", lambda: None, raising=False)


def found_in(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(archive: Path, folder: Path, words: str) -> None:
    """The archive is refused in these words, and there is nothing of it, neither inside the folder nor outside."""
    before = sorted(path.name for path in archive.parent.iterdir())
    with pytest.raises(BadInput, match=words) as error:
        unpack(archive, folder)
    assert len(str(error.value)) < 1000
    assert list(folder.iterdir()) == []
    assert {*before, folder.name} == {path.name for path in archive.parent.iterdir()}


@pytest.mark.parametrize("compression", ["", "gz", "bz2", "xz"])
def test_a_tar_of_every_compression_is_unpacked(tmp_path, compression):
    members = {"a": DATA, "deep/er/b": b"", "deep/c": b"c" * 1000}
    (tmp_path / "archive").write_bytes(tar_of(members, compression))
    unpack(tmp_path / "archive", tmp_path / "folder")
    assert found_in(tmp_path / "folder") == members


def test_unpacking_into_a_folder_that_is_there_keeps_what_is_in_it(tmp_path):
    archive, folder = tmp_path / "archive.zip", tmp_path / "folder"
    (folder / "place").mkdir(parents=True)
    (folder / "place" / "mine").write_bytes(b"mine")
    (folder / "place" / "a").write_bytes(b"old")
    archive.write_bytes(zip_of({"place/a": b"new", "place/b/c": b"deep"}))
    unpack(archive, folder)
    assert found_in(folder) == {"place/mine": b"mine", "place/a": b"new", "place/b/c": b"deep"}


@pytest.mark.parametrize(
    "name",
    ["../outside", "inside/../../outside", "/outside", "//outside", "..\\outside", "C:outside", "a/b:c", "a\x01"],
)
@pytest.mark.parametrize("make", [tar_of, zip_of])
def test_no_member_of_an_archive_leaves_the_folder(tmp_path, make, name):
    (tmp_path / "archive").write_bytes(make({"first": b"fine", name: b"bad"}))
    refused(tmp_path / "archive", tmp_path / "folder", "archive: expected members inside the folder")


@pytest.mark.parametrize(
    "changes",
    [
        {"type": tarfile.SYMTYPE, "linkname": "../.."},
        {"type": tarfile.SYMTYPE, "linkname": "/etc"},
        {"type": tarfile.SYMTYPE, "linkname": "inside"},
        {"type": tarfile.LNKTYPE, "linkname": "../../etc/passwd"},
        {"type": tarfile.LNKTYPE, "linkname": "missing"},
        {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3},
        {"type": tarfile.BLKTYPE, "devmajor": 8, "devminor": 0},
        {"type": tarfile.FIFOTYPE},
    ],
)
def test_links_devices_and_pipes_in_a_tar_are_refused(tmp_path, changes):
    (tmp_path / "archive").write_bytes(tar_with(**changes))
    refused(tmp_path / "archive", tmp_path / "folder", "expected plain files and folders, found 'strange'")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK])
def test_links_devices_and_pipes_in_a_zip_are_refused(tmp_path, kind):
    (tmp_path / "archive").write_bytes(zip_of({"strange": b"/etc/passwd"}, kind | 0o777))
    refused(tmp_path / "archive", tmp_path / "folder", "expected plain files and folders, found 'strange'")


def test_a_link_that_others_are_written_through_is_refused(tmp_path):
    """The filters of older Pythons follow long chains of such links out of the folder."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "."
        tar.addfile(link)
        inner = tarfile.TarInfo("link/../../outside")
        inner.size = 3
        tar.addfile(inner, io.BytesIO(b"bad"))
    (tmp_path / "archive").write_bytes(stream.getvalue())
    refused(tmp_path / "archive", tmp_path / "folder", "plain files and folders")


@pytest.mark.parametrize("make", [tar_of, zip_of])
def test_the_same_name_twice_is_refused(tmp_path, make):
    (tmp_path / "archive").write_bytes(make({"a": b"1", "./a": b"2"}))
    refused(tmp_path / "archive", tmp_path / "folder", "every member once, found './a' twice")


@pytest.mark.parametrize("make", [tar_of, zip_of])
def test_an_archive_that_grows_beyond_its_published_size_is_refused(tmp_path, make):
    archive = tmp_path / "archive"
    archive.write_bytes(make({"a": bytes(1_000_000)}))
    assert archive.stat().st_size < 5000
    with pytest.raises(BadInput, match="expected at most 100,000 bytes when unpacked"):
        unpack(archive, tmp_path / "folder", most=100_000)
    assert list((tmp_path / "folder").iterdir()) == []
    unpack(archive, tmp_path / "folder", most=1_100_000)  # of a tar headers count too


@pytest.mark.parametrize("make", [tar_of, zip_of])
def test_without_a_published_size_it_is_the_ratio_that_counts(tmp_path, make, monkeypatch):
    monkeypatch.setattr(archives, "SMALL", 10_000)
    (tmp_path / "archive").write_bytes(make({"a": bytes(1_000_000)}))
    refused(tmp_path / "archive", tmp_path / "folder", "bytes when unpacked")


def test_a_zip_that_hides_how_much_it_holds_is_stopped_while_it_comes(tmp_path):
    raw = bytearray(zip_of({"a": bytes(1_000_000)}))
    at = raw.rindex(b"PK\x01\x02") + 24  # the size in the directory
    raw[at : at + 4] = (10).to_bytes(4, "little")
    (tmp_path / "archive").write_bytes(raw)
    refused(tmp_path / "archive", tmp_path / "folder", "a damaged one|bytes when unpacked")


def test_a_header_without_end_is_not_read_whole(tmp_path):
    with tarfile.open(tmp_path / "archive", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("a")
        info.pax_headers = {"comment": "x" * 3_000_000}
        tar.addfile(info)
    with pytest.raises(BadInput, match="at most 1,000,000 bytes"):
        unpack(tmp_path / "archive", tmp_path / "folder", most=1_000_000)


def test_too_many_members_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MOST_MEMBERS", 10)
    (tmp_path / "archive").write_bytes(zip_of({str(number): b"" for number in range(11)}))
    refused(tmp_path / "archive", tmp_path / "folder", "expected at most 10 members")


def test_the_modes_in_an_archive_count_for_nothing(tmp_path):
    (tmp_path / "archive").write_bytes(zip_of({"a": b"#!/bin/sh"}, stat.S_IFREG | 0o6777))
    unpack(tmp_path / "archive", tmp_path / "folder")
    assert (tmp_path / "folder" / "a").stat().st_mode & 0o6111 == 0


@pytest.mark.parametrize("make", [tar_of, zip_of])
def test_a_truncated_archive_is_named_and_nothing_is_unpacked(tmp_path, make):
    whole = make({"a": DATA, "b": bytes(100_000)})
    (tmp_path / "archive").write_bytes(whole[: len(whole) // 2])
    refused(tmp_path / "archive", tmp_path / "folder", "archive: expected a whole tar or zip file, found a damaged one")


@pytest.mark.parametrize("compression", ["", "gz", "bz2", "xz", "zip"])
def test_an_archive_that_is_cut_off_or_changed_anywhere_is_whole_or_named(tmp_path, compression):
    members = {"a": DATA[:3000], "b/c": b"text " * 300, "d": b""}
    whole = zip_of(members) if compression == "zip" else tar_of(members, compression)
    rng = random.Random(compression)
    for number in range(60):
        raw = bytearray(whole)
        if number % 3 == 0:
            raw = raw[: rng.randrange(len(raw))]
        else:
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        (tmp_path / "archive").write_bytes(raw)
        folder = tmp_path / str(number)
        try:
            unpack(tmp_path / "archive", folder)
        except BadInput:
            assert list(folder.iterdir()) == []
        else:  # a plain tar has no sum over its content, and some bits are of no account
            names = sorted(path.name for path in folder.rglob("*") if path.is_file())
            assert len(names) == 3


def test_a_damaged_header_is_not_the_end_of_the_archive(tmp_path):
    raw = bytearray(tar_of({"a": b"a" * 512, "b": b"b", "c": b"c"}, ""))
    raw[1024 + 3] ^= 255  # in the header of b
    (tmp_path / "archive").write_bytes(raw)
    refused(tmp_path / "archive", tmp_path / "folder", "found a damaged one")


def test_a_full_disk_is_not_called_a_damaged_archive(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "archive").write_bytes(zip_of({"a": b"a"}))
    monkeypatch.setattr(archives, "_move", full)
    with pytest.raises(RunFailed, match=r"cannot be unpacked into .* .No space left"):
        unpack(tmp_path / "archive", tmp_path / "folder")


@pytest.mark.parametrize("existing", [False, True])
def test_what_is_cut_off_is_never_taken_for_a_whole_data_set(tmp_path, monkeypatch, existing):
    """At every file that gets its name the process ends; the layout looks only at two of the files."""
    names = [f"train/{number}" for number in range(5)]
    archive = tmp_path / "archive"
    archive.write_bytes(zip_of({f"set/{name}": DATA[:500] for name in (*names, "list.txt")}))
    layout, replace, left = Layout("files", "set", ("train", "list.txt")), Path.replace, 0

    def ending(self: Path, target: Path) -> Path:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", ending)
    for cut in range(6 if existing else 1):
        folder, left = tmp_path / str(cut), cut
        base = folder / "set"
        if existing:
            (base / "train").mkdir(parents=True)
            (base / "list.txt").write_text("an old one")
        with pytest.raises(KeyboardInterrupt):
            unpack(archive, folder)
        assert layout.missing(base)
        left = 100
        unpack(archive, folder)
        assert layout.missing(base) == ()
        assert len(found_in(base)) == 6


def test_only_zip_and_tar_files_are_archives(tmp_path):
    (tmp_path / "archive").write_text("<html>not found</html>")
    refused(tmp_path / "archive", tmp_path / "folder", "found a damaged one")
    assert not zipfile.is_zipfile(tmp_path / "archive")
