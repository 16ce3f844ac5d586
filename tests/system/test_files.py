"""Files that are whole or not there at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from fedrelay.config.experiment import blocked
from fedrelay.system import files


def test_a_file_is_written_in_place_of_the_old_one_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    files.write(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with suppress(KeyboardInterrupt), files.writing(path) as file:
        file.write(b"half of the n")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_process_that_is_killed_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    code = f"""
import os, pathlib, signal
from fedrelay.system import files
from fedrelay.config.experiment import blocked
with files.writing(pathlib.Path({str(path)!r})) as file:
    file.write(b"half of the n")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    (part,) = (other for other in tmp_path.iterdir() if other != path)
    assert files.PART.fullmatch(part.name)


def test_what_the_killed_left_long_ago_is_removed_and_nothing_else_is(tmp_path):
    long_ago = time.time() - 2 * files.ABANDONED
    for name in (".fedrelay-0123456789abcdef.part", "mine.part", ".fedrelay-notes.part"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (long_ago, long_ago))
    (tmp_path / ".fedrelay-fedcba9876543210.part").touch()  # of somebody who is writing now
    files.write(tmp_path / "a", b"")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"a", "mine.part", ".fedrelay-notes.part", ".fedrelay-fedcba9876543210.part"}


def test_a_name_may_depend_on_the_content(tmp_path):
    sizes = []
    with files.writing(tmp_path / "anything", lambda: f"{sum(sizes)}-bytes") as file:
        sizes.append(file.write(b"12345"))
    assert [path.name for path in tmp_path.iterdir()] == ["5-bytes"]


def test_a_link_that_somebody_put_there_is_not_followed(tmp_path, monkeypatch):
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.write_bytes(b"precious")
    folder.mkdir()
    monkeypatch.setattr(files.secrets, "token_hex", lambda count: "0" * 2 * count)  # even if the name were known
    (folder / ".fedrelay-0000000000000000.part").symlink_to(outside)
    (folder / "a").symlink_to(outside)
    with pytest.raises(FileExistsError):
        files.write(folder / "a", b"new")
    monkeypatch.undo()
    files.write(folder / "a", b"new")  # takes the place of the link, not of what it points to
    assert (folder / "a").read_bytes() == b"new"
    assert outside.read_bytes() == b"precious"


def test_long_names_are_no_longer_while_they_are_written(tmp_path):
    path = tmp_path / ("n" * 255)
    files.write(path, b"1")
    assert path.read_bytes() == b"1"


def test_a_part_that_a_killed_run_left_does_not_block_its_folder(tmp_path):
    (tmp_path / ".fedrelay-0123456789abcdef.part").touch()
    (tmp_path / ".config.toml.part").touch()  # as older versions left it
    assert not blocked(tmp_path)
    (tmp_path / "thesis.tex").touch()
    assert blocked(tmp_path)
