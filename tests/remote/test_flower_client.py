"""A client's own process on a Flower federation: it stays from message to message, and says why it cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Listener
from pathlib import Path
from types import SimpleNamespace

import machines
import numpy as np
import pytest
from needs import posix

from fedrelay.engines.remote.trees import decode, encode
from fedrelay.errors import BadInput
from fedrelay.remote.flower import calling, client
from fedrelay.remote.flower.doorway import doorway
from fedrelay.remote.flower.node import Node
from fedrelay.remote.flower.records import Parcel, packed
from fedrelay.remote.flower.resident import Attendant, left
from fedrelay.remote.reception import environment

pytestmark = posix

GREETING = {"is": "welcome", **environment(), "data": {"name": "digits"}, "clients": ["north"], "challenge": ""}
WELCOME = Parcel(bytes(encode(GREETING)))


def process_of(home: Path) -> dict:
    return json.loads((home / "process.json").read_text(encoding="utf-8"))


def listening(pid: int) -> set[str]:
    """The sockets of a process that anybody on this machine could reach by a port."""
    table = Path(f"/proc/{pid}/net/tcp")
    if not table.exists():
        return set()
    rows = [line.split() for line in table.read_text(encoding="ascii").splitlines()[1:]]
    open_ports = {row[9] for row in rows if row[3] == "0A"}
    held = {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}
    return {inode for inode in open_ports if f"socket:[{inode}]" in held}


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
    door = Path(first["address"])  # in a folder of its owner's alone: nobody else can keep it busy
    assert (door.is_socket(), door.stat().st_mode & 0o077) == (True, 0)
    assert not listening(first["pid"])
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


PASSES_ON = """
import json, os, sys, threading
from multiprocessing.connection import Listener
from pathlib import Path
from types import SimpleNamespace
import flwr.app, flwr.clientapp
before = set(sys.modules)
from fedrelay.remote.flower.client import _answer
from fedrelay.remote.flower.node import node_of
from fedrelay.remote.flower.records import Parcel
started = {"name": "north", "home": sys.argv[1]}
listener = Listener(sys.argv[1] + "/process.sock", authkey=b"key")
told = {"address": listener.address, "key": b"key".hex(), "parent": os.getppid()}
told["node"] = node_of(started, {}, id=7).text
Path(sys.argv[1], "process.json").write_text(json.dumps(told))
def reside():
    with listener.accept() as connection:
        connection.recv_bytes(), connection.send_bytes(connection.recv_bytes().upper())
threading.Thread(target=reside, daemon=True).start()
context = SimpleNamespace(node_config=started, run_config={}, node_id=7, run_id=1)
assert _answer(Parcel(b"question"), context).message == b"QUESTION"
print(*sorted(set(sys.modules) - before))
"""
"""The process that Flower starts for every message, with one that stands for the client's own: what it imports beside
Flower."""


def test_the_process_that_flower_starts_for_every_message_imports_next_to_nothing(tmp_path):
    """It only passes the message on: torch, SciPy or a configuration would each take as long as all its work."""
    passing = [sys.executable, "-c", PASSES_ON, str(tmp_path)]
    said = subprocess.run(passing, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    known = {"__mp_main__", *sys.stdlib_module_names}
    parts = ("errors", "remote", "remote.refusals", "system", "system.files", "system.startup")
    flower = ("", ".calling", ".client", ".node", ".records")
    assert {name for name in said.split() if name.partition(".")[0] not in known} == {
        *("fedrelay", *(f"fedrelay.{part}" for part in parts)),
        *(f"fedrelay.remote.flower{part}" for part in flower),
    }


def test_the_server_is_not_told_of_files_of_a_client_that_cannot_take_part(tmp_path, caplog):
    nowhere = tmp_path / "nowhere.toml"
    started = {"name": "north", "home": str(tmp_path / "north"), "policy": str(nowhere)}
    found = client._answer(WELCOME, SimpleNamespace(node_config=started, run_config={}, node_id=7, run_id=1))
    assert found.declined == "north: it cannot use its data or its disk as this run needs them; its own log says why"
    assert str(nowhere) in caplog.text


def test_nothing_that_goes_wrong_is_left_to_flower_to_tell(tmp_path, caplog, monkeypatch):
    def asked(node, parcel):
        raise RuntimeError(f"{tmp_path / 'ward-7.csv'}: Ada Byron")

    monkeypatch.setattr(client, "asked", asked)
    context = SimpleNamespace(node_config={"name": "north", "home": str(tmp_path)}, run_config={}, node_id=7, run_id=1)
    found = client._answered(SimpleNamespace(content=packed(WELCOME)), context)
    assert found.declined == "it cannot use its data or its disk as this run needs them; its own log says why"
    assert "ward-7.csv: Ada Byron" in caplog.text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"clients": ["south", "west"]}, "'north' is no client of this run, which has south, west"),
        ({"protocol": 1}, "the server has protocol 1, this client"),
        ({"fedrelay": "0.0.1"}, "the server has fedrelay 0.0.1, this client"),
    ],
)
def test_a_run_that_is_not_for_a_client_learns_nothing_of_its_data(change, says, tmp_path):
    np.savez(tmp_path / "north.npz", x=np.zeros((5, 2)), y=np.arange(5))
    attendant = Attendant(Node("north", str(tmp_path / "home"), data=str(tmp_path / "north.npz")))
    declined = decode(attendant.answer(Parcel(bytes(encode({**GREETING, **change})))))
    assert declined["is"] == "declined"
    assert says in declined["reason"]
    assert (tmp_path / "home" / "sent.jsonl").read_text(encoding="utf-8") == ""
    assert decode(attendant.answer(WELCOME))["told"]["rows"] == 5


def test_a_home_with_a_long_path_has_its_socket_elsewhere_and_nothing_stays_behind(tmp_path):
    home = tmp_path / ("long" * 30)
    home.mkdir()
    with doorway(home) as address:
        assert len(address) < 108
        assert Path(address).parent.stat().st_mode & 0o077 == 0
        Listener(address).close()
    assert not Path(address).parent.exists()
    assert list(home.iterdir()) == []


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
