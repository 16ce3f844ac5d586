"""The injector of faults, on actions whose operations are known."""

from __future__ import annotations

import signal
import tempfile

import pytest

pytest.importorskip("fcntl", reason="Windows has no fork")
import faults


def written(path, content=b"0123456789"):
    def action() -> None:
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            file.write(content)
        path.replace(path.with_name("b"))

    return action


def test_operations_are_listed_in_order_and_happen(tmp_path):
    assert faults.operations(written(tmp_path / "x" / "a")) == ["mkdir", "open", "write", "replace"]
    assert (tmp_path / "x" / "b").read_bytes() == b"0123456789"


def test_memories_in_a_temporary_file_and_text_count_as_well(tmp_path):
    def action() -> None:
        with tempfile.TemporaryFile(dir=tmp_path) as file:
            file.write(b"1" * 100_000)
        (tmp_path / "t").write_text("ä")

    found = faults.operations(action)
    assert found.count("write") == 2
    assert faults.count(action) == len(found)


@pytest.mark.parametrize(
    ("n", "kind", "left"),
    [
        (1, "kill", {}),
        (2, "kill", {}),
        (3, "kill", {"a": b""}),
        (3, "cut", {"a": b"01234"}),
        (4, "kill", {"a": b"0123456789"}),
        (5, "kill", {"b": b"0123456789"}),
    ],
)
def test_a_kill_leaves_what_was_on_disk_by_then(tmp_path, n, kind, left):
    ended = faults.at(n, kind, written(tmp_path / "x" / "a"))
    assert ended.code == (0 if n > 4 else -signal.SIGKILL)
    assert {path.name: path.read_bytes() for path in (tmp_path / "x").glob("*")} == left


@pytest.mark.parametrize(("kind", "left"), [("full", b""), ("short", b"01234")])
def test_a_full_disk_is_an_error_that_the_action_sees(tmp_path, kind, left):
    ended = faults.at(3, kind, written(tmp_path / "x" / "a"))
    assert ended.code == 70
    assert "No space left on device" in ended.said
    assert (tmp_path / "x" / "a").read_bytes() == left


def test_a_full_disk_stays_full_but_lets_files_be_removed(tmp_path):
    def action() -> int:
        made = []
        for name in ("a", "b", "c"):
            try:
                (tmp_path / name).mkdir()
                made.append(name)
            except OSError:
                pass
        (tmp_path / made[0]).rmdir()
        return len(made)

    assert faults.at(2, "full", action).code == 1
    assert list(tmp_path.iterdir()) == []


def test_half_of_an_operation_is_tried_only_where_it_is_a_write():
    assert faults.trials(["mkdir", "write"]) == [
        *((1, "full"), (1, "kill")),
        *((2, "cut"), (2, "full"), (2, "kill"), (2, "short")),
    ]
