"""Ctrl-C at any line while memories change: those of the last round that ended well are all there."""

from __future__ import annotations

import errno
import itertools
import sys
from dataclasses import replace

import pytest
from test_memory import SMALL, Diary, same, tree

import fedrelay as fr
from fedrelay import Federation, Recorder, Task, cli
from fedrelay.algorithms import fedavg
from fedrelay.data import Natural, quadratic
from fedrelay.engines import Inline, memory
from fedrelay.engines.memory import Memory
from fedrelay.models import Quadratic
from fedrelay.runs import checkpoint


class Interrupt:
    """Raises KeyboardInterrupt at the n-th line that is run in these files once it is armed."""

    def __init__(self, n: int, files: tuple[str, ...], arm: str | None = None) -> None:
        self.left, self.files, self.arm, self.armed = n, files, arm, arm is None

    def __enter__(self):
        sys.settrace(self.trace)
        return self

    def __exit__(self, *exc):
        sys.settrace(None)

    def trace(self, frame, event, arg):
        if not frame.f_code.co_filename.endswith(self.files):
            return None
        if event == "call" and frame.f_code.co_name == self.arm and frame.f_locals.get("round") == 3:
            self.armed = True
        if event == "line" and self.armed:
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
        return self.trace


def filled() -> Memory:
    found = Memory(SMALL)
    for client in range(8):
        found.stage(client, tree(client))
    found.commit(1)
    return found


def test_an_interrupt_at_any_line_of_a_round_leaves_the_memories_of_the_round_before():
    expected = {client: tree(client) for client in range(8)}
    for n in itertools.count():
        found = filled()
        try:
            with Interrupt(n, ("engines/memory.py",)):
                found.discard()
                for client in (2, 9, 2, 5):
                    found.stage(client, tree(10 + client))
                found.commit(2)
        except KeyboardInterrupt:
            found.back_to(1)
            assert found.round == 1
            assert same(dict(found.all()), expected), n
            continue
        break
    assert n > 100  # lines, of which each has had its interrupt
    assert found.round == 2
    assert same(found.get(2), tree(12))
    found.back_to(1)
    assert same(dict(found.all()), expected)


def test_only_the_last_commit_can_be_undone_and_only_until_the_next_round_begins():
    found = filled()
    found.stage(3, tree(99))
    found.commit(2)
    found.back_to(0)
    assert found.round == 2
    found.discard()  # as every round does first
    found.back_to(1)
    assert found.round == 2
    assert same(found.get(3), tree(99))


def recorder(folder) -> Recorder:
    federation = Federation.split(quadratic(clients=6, dimension=2, seed=2), Natural())
    engine = Inline(federation, Task.of(Quadratic(), federation), memory_limit=SMALL)
    algorithm = replace(fr.method(fedavg(), fraction=0.5), update=Diary())
    return Recorder(folder, algorithm, engine, None, rounds=4, checkpoint_every=100, resume=True)


FILES = ("engines/memory.py", "engines/inline.py", "runs/loop.py", "runs/record.py")


def test_an_interrupt_while_a_round_is_committed_loses_no_round_before_it(tmp_path):
    """From the first line of the commit of round 3 to the writing of its line, wherever that is."""
    for n in itertools.count():
        folder = tmp_path / f"{n}"
        with pytest.raises(KeyboardInterrupt), Interrupt(n, FILES, arm="commit") as interrupt:
            list(recorder(folder).run())
        assert interrupt.armed
        found = checkpoint.newest_round(folder / "checkpoint")
        assert found in (2, 3), n
        if (folder / "rounds.jsonl").read_bytes().count(b"\n") == 3:
            break
    assert n > 10
    *_, last = recorder(tmp_path / "0").run()
    *_, expected = recorder(tmp_path / "whole").run()
    ends = [checkpoint.load(tmp_path / name / "checkpoint") for name in ("0", "whole")]
    assert last.round == expected.round == 4
    assert same(dict(ends[0][1]), dict(ends[1][1]))


FILE = """
rounds = 6
data = { name = "digits", clients = 10 }
model = { name = "logistic" }
local = { steps = 2, lr = 0.1 }
algorithm = { name = "scaffold", fraction = 0.5 }
engine = { name = "inline", memory_limit = 0.005 }
"""


class Filling:
    """A file on a disk that is soon full."""

    def __init__(self, file, room: int) -> None:
        self.file, self.room = file, room

    def write(self, content) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self.file.write(content[: self.room])  # a system takes what it can before it says no
        self.room -= written
        return written

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_a_disk_that_fills_up_with_memories_stops_the_run_without_losing_a_round(tmp_path, monkeypatch, capsys):
    (tmp_path / "run.toml").write_text(FILE)
    run = ["run", str(tmp_path / "run.toml"), "--json", "--out"]
    original = memory.tempfile.TemporaryFile
    with monkeypatch.context() as patched:
        patched.setattr(memory.tempfile, "TemporaryFile", lambda **options: Filling(original(**options), room=27_000))
        assert cli.main([*run, str(tmp_path / "full")]) == 1
    said = capsys.readouterr().err
    assert "client memories beyond memory_limit find no room" in said
    assert "No space left on device" in said
    assert "Traceback" not in said
    assert 0 < checkpoint.newest_round(tmp_path / "full" / "checkpoint") < 6
    assert cli.main([*run, str(tmp_path / "full"), "--resume"]) == 0
    assert cli.main([*run, str(tmp_path / "whole")]) == 0
    resumed, whole = ((tmp_path / name / "model.pt").read_bytes() for name in ("full", "whole"))
    assert resumed == whole
