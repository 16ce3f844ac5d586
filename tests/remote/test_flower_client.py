"""A client's own process on a Flower federation: it stays from message to message, and says why it cannot."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import machines
import pytest
from needs import posix

from fedrelay.engines.remote.trees import decode, encode
from fedrelay.errors import BadInput
from fedrelay.remote.flower import calling, client
from fedrelay.remote.flower.node import Node
from fedrelay.remote.flower.records import Parcel
from fedrelay.remote.flower.resident import left

pytestmark = posix

WELCOME = Parcel(bytes(encode({"is": "welcome", "data": {"name": "digits"}})))


def process_of(home: Path) -> dict:
    return json.loads((home / "process.json").read_text(encoding="utf-8"))


def ended(pid: int) -> None:
    """Wait until a process is gone. It is our child as long as this test goes on."""
    for _ in machines.ticks("it did not end"):
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return


def test_a_process_answers_message_after_message_and_gives_way_to_one_of_another_set_up(tmp_path):
    node = Node("north", str(tmp_path / "north"))
    said = decode(calling.asked(node, WELCOME))
    assert (said["is"], said["name"], said["told"]) == ("hello", "north", {"kind": "experiment"})
    first = process_of(tmp_path / "north")
    assert decode(calling.asked(node, Parcel(b"nonsense")))["is"] == "declined"
    assert decode(calling.asked(node, WELCOME)) == said
    assert process_of(tmp_path / "north") == first
    other = replace(node, data=str(tmp_path / "nowhere.csv"))
    declined = decode(calling.asked(other, WELCOME))
    assert (declined["is"], declined["name"]) == ("declined", "north")
    assert "its own log says why" in declined["reason"]  # the reason names a file of the client's
    ended(first["pid"])
    second = process_of(tmp_path / "north")
    assert second["pid"] != first["pid"]
    with pytest.raises(BadInput, match="there is no file"):
        calling.asked(replace(node, policy=str(tmp_path / "nowhere.toml")), WELCOME)  # it ends the one before it
    ended(second["pid"])
    assert [path.name for path in tmp_path.rglob("process.json")] == []


def test_the_server_is_not_told_of_files_of_a_client_that_cannot_take_part(tmp_path, caplog):
    nowhere = tmp_path / "nowhere.toml"
    started = {"name": "north", "home": str(tmp_path / "north"), "policy": str(nowhere)}
    found = client._answer(WELCOME, SimpleNamespace(node_config=started, run_config={}))
    assert found.declined == "north: it cannot use its data or its disk as this run needs them; its own log says why"
    assert str(nowhere) in caplog.text


def test_who_has_left_is_not_worked_for():
    here, there = Pipe()
    assert not left(here)
    there.close()
    assert left(here)
    here.close()
    assert not left(here)  # it was answered meanwhile


def test_a_home_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(BadInput, match="cannot be written"):
        calling.asked(Node("north", str(tmp_path / "file" / "home")), WELCOME)
