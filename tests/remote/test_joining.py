"""Clients that come when a run has begun already, or is just ending."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import machines
import pytest
import torch
from needs import posix
from scenes import NAMES

from fedrelay import BadInput
from fedrelay.engines.remote.trees import decode, encode
from fedrelay.engines.remote.wire import Came
from fedrelay.remote.frames import Assembler, frames
from fedrelay.remote.grpc_server import GrpcWire
from fedrelay.remote.hosting import Host, Serving
from fedrelay.remote.reception import EXPERIMENT, Expected, Reception, Refused, environment

FILE = """
rounds = 100000
seed = 1
[data]
name = "digits"
clients = 4
partition = { name = "dirichlet", alpha = 0.5 }
[model]
name = "mlp"
hidden = [8]
[algorithm]
name = "fedseq"
groups = 2
traits = "histogram"
[local]
lr = 0.1
batch = 16
[evaluate]
every = 100000
"""


def lines_of(folder: Path) -> list[dict]:
    path = folder / "rounds.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def until(folder: Path, server: machines.Machine, good) -> list[dict]:
    """Wait until the lines are good: they are."""
    for _ in machines.ticks("it did not happen"):
        lines = lines_of(folder)
        if lines and good(lines):
            return lines
        assert server.ended() is None, server.said
    raise AssertionError


@posix
def test_a_client_that_is_started_when_the_run_is_under_way_is_described_and_grouped(site):
    path, folder = site.folder / "experiment.toml", site.folder / "run"
    path.write_text(FILE, encoding="utf-8")
    words = ("--clients", ",".join(NAMES), "--listen", "127.0.0.1:0", "--beginning", "0.75", "--out", folder)
    server = site.start("serve", path, *words)

    def join(name: str) -> machines.Machine:
        home = ("--home", site.folder / f"home-{name}", "--data", "experiment")
        return site.start("join", "--server", f"127.0.0.1:{server.port}", "--name", name, *home, name=name)

    for name in NAMES[:3]:
        join(name)
    lines = until(folder, server, lambda lines: len(lines) > 1)
    assert (lines[0]["joined"], lines[0]["clients"], lines[0]["drops"]) == ([0, 1, 2], 3, [])
    join("west")
    lines = until(folder, server, lambda lines: lines[-1]["clients"] == 4)
    came = [line for line in lines[1:] if "joined" in line]
    assert [line["joined"] for line in came] == [[3]]
    assert came[0]["describing"]["messages"] == 1
    assert not any(line["drops"] for line in lines)
    sent = (site.folder / "home-west" / "sent.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(sent[1])["work"] == "plan.grouping.traits"


class Call:
    """A client's call as the server sees it, without a network: the client says what is put into `said`."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[bytes] = asyncio.Queue()
        self.heard: list[dict] = []
        self._assembler = Assembler(1 << 20)

    async def read(self) -> bytes:
        return await self.said.get()

    async def write(self, frame: bytes) -> None:
        message = self._assembler.add(frame)
        if message is not None:
            self.heard.append(decode(message))

    def auth_context(self) -> dict:
        return {}

    def say(self, tree: dict) -> None:
        for frame in frames(encode(tree)):
            self.said.put_nowait(frame)

    async def until(self, kind: str) -> None:
        while not self.heard or self.heard[-1]["is"] != kind:
            await asyncio.sleep(0)


class Nothing:
    """In place of gRPC's server."""

    async def stop(self, grace: float) -> None:
        """It has no calls to end."""


async def joined_while_ending(wire: GrpcWire, call: Call) -> None:
    """The client has been told what the run is, and builds its model; then the run ends; then the client is ready."""
    wire._server, wire.port = Nothing(), 1
    wire._watch = asyncio.ensure_future(asyncio.sleep(1000))
    life = asyncio.ensure_future(wire._join(None, call))
    call.say({"is": "hello", **environment(), "name": "north", "instance": "1", "working": "", "has": ""})
    await call.until("welcome")
    call.say({"is": "described", "data": {"kind": EXPERIMENT}})
    await call.until("prepared")
    closing = asyncio.ensure_future(wire._close(ended=True))
    await asyncio.sleep(0.05)
    assert not closing.done()  # it waits for who is on its way in
    call.say({"is": "ready", "size": 3, "parameters": 5, "trainable": 5})
    await asyncio.wait_for(asyncio.gather(life, closing), 60)


def test_a_client_that_joins_while_the_run_ends_is_told_so():
    wire, call = GrpcWire("127.0.0.1:0", credentials=None), Call()
    wire._reception = Reception(["north"], {}, own=False)
    wire._reception.offer({"run": "1", "digest": "a"}, Expected(5, 5, [3]))
    wire._offered.set()
    try:
        wire._loop.run_until_complete(joined_while_ending(wire, call))
    finally:
        wire._loop.close()
    assert [said["is"] for said in call.heard] == ["welcome", "prepared", "end"]
    assert wire.wait(0.0)[0] == Came(0, "", 3)


ARRAYS = {
    "kind": "arrays",
    "rows": 5,
    "shape": [4],
    "type": "float32",
    "target": "classes",
    "targets": [],
    "classes": 3,
}


def in_a_call(wire: GrpcWire, reception: Reception, life) -> None:
    """What happens in a call, as `life` says; then the loop is closed."""
    wire._reception = reception
    try:
        wire._loop.run_until_complete(asyncio.wait_for(life, 60))
    finally:
        wire._loop.close()


async def described(wire: GrpcWire, call: Call, name: str, has: str = "") -> asyncio.Future:
    life = asyncio.ensure_future(wire._join(None, call))
    call.say({"is": "hello", **environment(), "name": name, "instance": "1", "working": "", "has": has})
    await call.until("welcome")
    call.say({"is": "described", "data": ARRAYS})
    return life


def test_who_waits_and_does_not_go_with_the_others_is_told_why_before_the_run_begins():
    wire, call = GrpcWire("127.0.0.1:0", credentials=None), Call()
    reception = Reception(["north", "south"], {}, own=True)

    async def life() -> None:
        joining = await described(wire, call, "north")
        while not reception.descriptions:
            await asyncio.sleep(0)
        reception.refuse(0, "the clients' arrays differ")
        await joining

    in_a_call(wire, reception, life())
    assert call.heard[-1] == {
        "is": "refused",
        "reason": "this client's data does not go with that of most others: the clients' arrays differ",
        "again": 0.0,
    }
    assert reception.descriptions == {}


def test_while_it_cannot_be_said_who_is_the_odd_one_the_server_waits_for_more():
    host = Host(Serving({"data": {}}, own_data=True), lambda: ["east", "north", "west"], None)
    told = {"east": ARRAYS, "north": {**ARRAYS, "shape": [5]}}
    assert host._fitting(told) == {}
    assert host.reception.refusals == {}
    assert list(host._fitting({**told, "west": told["north"]})) == ["north", "west"]
    with pytest.raises(BadInput, match="cannot be said which is the odd one"):
        host._fitting({**told, "west": {**ARRAYS, "shape": [6]}})


@pytest.mark.parametrize("data", [{**ARRAYS, "rows": 10**12}, {**ARRAYS, "shape": [1 << 30]}, {"kind": "arrays"}])
def test_a_client_that_tells_what_no_server_can_hold_is_refused(data):
    reception = Reception(["north"], {}, own=True)
    with pytest.raises(Refused, match="what the client tells of its data cannot be"):
        reception.describe(0, {"is": "described", "data": data})
    reception.offer({"run": "1", "digest": "a"}, Expected(5, 5))
    with pytest.raises(Refused, match="are the most that can be taken"):
        reception.admit(0, {"is": "ready", "size": 10**12, "parameters": 5, "trainable": 5})


@pytest.mark.parametrize(("has", "sent"), [("", True), ("another", True), ("the run", False)])
def test_exemplars_are_sent_again_only_to_whom_lacks_them(has, sent):
    wire, call = GrpcWire("127.0.0.1:0", credentials=None), Call()
    reception = Reception(["north"], {}, own=True)
    reception.offer({"run": "1", "digest": "the run", "exemplars": {"x": torch.zeros(3)}}, Expected(5, 5))
    wire._offered.set()

    async def life() -> None:
        joining = await described(wire, call, "north", has)
        await call.until("prepared")
        joining.cancel()

    in_a_call(wire, reception, life())
    assert call.heard[-1]["digest"] == "the run"
    assert ("exemplars" in call.heard[-1]) is sent
