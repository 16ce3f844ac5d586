"""The folder of shared memory: the sweep removes what is ours and dead, and nothing else, whatever it is called."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from needs import posix

from fedrelay import BadInput
from fedrelay.engines import shared_folder
from fedrelay.engines.shared_folder import CONTENT, Folder, remove_abandoned

pytestmark = posix
NAME = "fedrelay-shared-0123456789abcdef"


@pytest.fixture(autouse=True)
def parent(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(Folder, "_parent", staticmethod(lambda size: tmp_path))
    return tmp_path


def dead(parent: Path) -> Path:
    """A folder as a program leaves it that was killed together with its workers."""
    folder = Folder(0)
    (folder.path / "data-1").write_bytes(b"x" * 100)
    (folder.path / "to-12-3").touch(0o600)
    os.close(folder._lock)
    folder._lock = None
    return folder.path


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_a_killed_program_left_is_given_back_and_what_a_living_one_has_stays(parent):
    living, left = Folder(0), dead(parent)
    other = Folder(0)
    assert sorted(parent.iterdir()) == sorted([living.path, other.path])
    assert not left.exists()
    for folder in (living, other):
        folder.remove()
    assert list(parent.iterdir()) == []


@pytest.mark.parametrize("moment", ["write", "rename"])
def test_a_sweep_at_any_moment_of_the_making_leaves_the_new_folder_alone(parent, monkeypatch, moment):
    """Its own file is swept over just before it is written, when it has no lock yet, and just before it is named."""
    where = {"write": (shared_folder.os, "write"), "rename": (Path, "rename")}[moment]
    original, swept = getattr(*where), []

    def sweep_first(*args):
        swept.append(1)
        remove_abandoned(parent)
        return original(*args)

    with monkeypatch.context() as patched:
        patched.setattr(*where, sweep_first)
        folder = Folder(0)
    assert swept
    assert (folder.path / "owner").read_bytes() == CONTENT
    remove_abandoned(parent)
    assert folder.path.is_dir()
    folder.remove()


def of_a_user(parent: Path) -> Path:
    folder = parent / NAME
    folder.mkdir(mode=0o700)
    (folder / "owner").write_text("Ada\n")
    (folder / "owner").chmod(0o600)
    return folder


def older_version(parent: Path) -> Path:
    folder = parent / "fedrelay-notes"
    folder.mkdir()
    (folder / "owner").touch()
    return folder


def with_something_else(parent: Path) -> Path:
    folder = dead(parent)
    (folder / "thesis.txt").write_text("years of work")
    return folder


def with_a_subfolder(parent: Path) -> Path:
    folder = dead(parent)
    (folder / "data-2").mkdir()
    return folder


def open_to_others(parent: Path) -> Path:
    folder = dead(parent)
    folder.chmod(0o755)
    return folder


def lock_elsewhere(parent: Path) -> Path:
    folder, real = dead(parent), parent / "mine"
    (folder / "owner").rename(real)
    (folder / "owner").symlink_to(real)
    return folder


def linked_folder(parent: Path) -> Path:
    """A link of our name to a user's folder that looks as ours do."""
    folder = dead(parent).rename(parent / "my own")
    (parent / NAME).symlink_to(folder)
    return folder


def plain_file(parent: Path) -> Path:
    (parent / NAME).write_text("no folder at all")
    return parent


def fifo(parent: Path) -> Path:
    folder = dead(parent)
    (folder / "owner").unlink()
    os.mkfifo(folder / "owner", 0o600)
    return folder


STRANGE = [
    *(of_a_user, older_version, with_something_else, with_a_subfolder, open_to_others),
    *(lock_elsewhere, linked_folder, plain_file, fifo),
]


@pytest.mark.parametrize("make", STRANGE, ids=lambda make: make.__name__)
def test_in_doubt_everything_stays(parent, make):
    folder = make(parent)
    before = files(folder)
    assert before or make is fifo
    remove_abandoned(parent)
    assert files(folder) == before
    assert folder.is_dir()


def test_what_belongs_to_another_user_stays_even_if_we_are_root(parent, monkeypatch):
    left = dead(parent)
    monkeypatch.setattr(os, "geteuid", lambda: left.stat().st_uid + 1)
    remove_abandoned(parent)
    assert (left / "data-1").exists()


def test_what_others_put_into_our_folder_stays_when_we_leave(parent):
    folder = Folder(0)
    (folder.path / "note.txt").write_text("hello")
    folder.remove()
    assert files(parent) == {f"{folder.path.name}/note.txt": b"hello"}


def test_a_full_disk_is_said_in_our_words_and_leaves_nothing(parent, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shared_folder.os, "write", full)
    with pytest.raises(BadInput, match=r"takes no folder for it \(No space left on device\); the engine inline needs"):
        Folder(0)
    assert list(parent.iterdir()) == []
