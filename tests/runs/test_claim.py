"""Who may write into a run folder, and who may read it."""

from __future__ import annotations

import os
import shutil
import stat

import pytest
from needs import posix

import fedrelay as fr
from fedrelay import BadInput, Federation, Recorder, RunFailed, Task
from fedrelay.algorithms import fedavg
from fedrelay.data import Iid, digits
from fedrelay.engines import Inline
from fedrelay.models import Logistic
from fedrelay.system import files


def recorder(folder, rounds=3, **more):
    federation = Federation.split(digits(), Iid(), 4)
    engine = Inline(federation, Task.of(Logistic(), federation))
    return Recorder(folder, fr.method(fedavg()), engine, federation.test, rounds=rounds, checkpoint_every=1, **more)


def contents(folder) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@posix
def test_a_run_folder_and_all_in_it_is_for_its_owner_only(tmp_path, umask):
    list(recorder(tmp_path / "runs" / "run").run())
    folder = tmp_path / "runs" / "run"
    assert mode(tmp_path / "runs") == 0o755  # not ours alone
    assert {mode(path) for path in (folder, folder / "checkpoint")} == {0o700}
    assert {path.name: mode(path) for path in folder.rglob("*") if path.is_file() and mode(path) != 0o600} == {}


@posix
@pytest.mark.parametrize(("mask", "expected"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_what_is_asked_for_elsewhere_is_for_whom_the_umask_lets(tmp_path, umask, mask, expected):
    os.umask(mask)
    files.write(tmp_path / "page.html", b"")
    assert mode(tmp_path / "page.html") == expected


@posix
@pytest.mark.parametrize(
    "name",
    ["rounds.jsonl", "config.toml", "model.pt", "model.json", "summary.json", "quality.json", "checkpoint/.lock"],
)
def test_a_planted_link_is_refused_and_nothing_outside_is_touched(tmp_path, name):
    list(recorder(tmp_path / "run").run())
    planted, outside = tmp_path / "run" / name, tmp_path / "outside"
    planted.replace(outside)
    planted.symlink_to(outside)
    before = contents(tmp_path)
    with pytest.raises(BadInput, match=rf"{name}: expected a plain file, found a link"):
        list(recorder(tmp_path / "run", rounds=5, resume=True).run())
    assert contents(tmp_path) == before


@posix
def test_a_link_in_the_place_of_what_is_under_way_is_refused_and_nothing_behind_it_is_removed(tmp_path):
    list(recorder(tmp_path / "run").run())
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "of-somebody.pt").touch()
    (tmp_path / "run" / "checkpoint" / "underway").symlink_to(outside)
    with pytest.raises(BadInput, match="underway: expected a plain folder, found a link"):
        list(recorder(tmp_path / "run", rounds=5, resume=True).run())
    assert (outside / "of-somebody.pt").exists()


@posix
def test_a_link_in_the_place_of_the_checkpoints_is_refused_and_nothing_behind_it_is_touched(tmp_path):
    list(recorder(tmp_path / "run").run())
    for planted in (tmp_path / "run" / "checkpoint", next((tmp_path / "run" / "checkpoint").glob("*.pt"))):
        outside = tmp_path / f"outside-{planted.name[:5]}"
        planted.replace(outside)
        planted.symlink_to(outside)
        before = contents(tmp_path)
        with pytest.raises(BadInput, match="found a link"):
            list(recorder(tmp_path / "run", rounds=5, resume=True).run())
        assert contents(tmp_path) == before
        planted.unlink()
        outside.replace(planted)


@posix
def test_a_pipe_in_the_place_of_a_file_is_refused_and_nobody_waits_for_it(tmp_path):
    list(recorder(tmp_path / "run").run())
    (tmp_path / "run" / "rounds.jsonl").unlink()
    os.mkfifo(tmp_path / "run" / "rounds.jsonl")
    with pytest.raises(BadInput, match="expected a plain file, found something else"):
        list(recorder(tmp_path / "run", resume=True).run())


@posix
def test_a_line_is_not_added_through_a_link(tmp_path):
    (tmp_path / "outside").write_bytes(b"precious")
    (tmp_path / "rounds.jsonl").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="symbolic"):
        files.append(tmp_path / "rounds.jsonl", b"more")
    assert (tmp_path / "outside").read_bytes() == b"precious"


@posix
def test_a_folder_that_is_removed_while_a_run_goes_on_is_not_made_again(tmp_path):
    rounds = recorder(tmp_path / "run").run()
    next(rounds)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(RunFailed, match="was removed or replaced while the run wrote into it"):
        next(rounds)
    assert list(tmp_path.iterdir()) == []


@posix
def test_a_folder_that_now_belongs_to_another_run_is_left_alone(tmp_path):
    rounds = recorder(tmp_path / "run").run()
    next(rounds)
    shutil.rmtree(tmp_path / "run")
    list(recorder(tmp_path / "run").run())
    before = contents(tmp_path)
    with pytest.raises(RunFailed, match="was removed or replaced"):
        next(rounds)
    assert contents(tmp_path) == before


@posix
def test_a_folder_that_cannot_be_made_is_refused_in_our_words(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"cannot be written \(.*\): choose another --out"):
        list(recorder(tmp_path / "file" / "run").run())


def test_parts_that_a_killed_run_left_are_gone_when_it_goes_on(tmp_path):
    list(recorder(tmp_path / "run").run())
    for place in ("run", "run/checkpoint"):
        (tmp_path / place / ".fedrelay-0123456789abcdef.part").touch()
    list(recorder(tmp_path / "run", resume=True).run())
    assert [name for name in contents(tmp_path) if name.endswith(".part")] == []
