"""Checkpoints that no run has written, with the right fingerprint: each is refused in our words and runs nothing."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import replace

import pytest
import torch
from test_claim import recorder

from fedrelay import BadInput
from fedrelay.runs import checkpoint
from fedrelay.runs.log import RoundLog
from fedrelay.types import Baton, Chain, Outcome, Report, State

STATE = State(1, (Baton(torch.zeros(3)),), {}, {}, {})
SPLIT = dict.fromkeys(("server_to_client", "client_to_server", "client_to_client"), 0)
LOG = RoundLog(1, 1, 1, 1, 1, 0.1, SPLIT, SPLIT)


def packed(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def placed(folder, raw: bytes, round: int = 1) -> None:
    (folder / f"round-{round:06d}-{hashlib.sha256(raw).hexdigest()}.pt").write_bytes(raw)


def indexed(*pieces: bytes, clients=((), (0,)), **more) -> bytes:
    """A whole file of these pieces."""
    index, start = [], 0
    for piece, own in zip(pieces, clients, strict=False):
        index.append({"clients": list(own), "start": start, "length": len(piece), **more})
        start += len(piece)
    words = json.dumps(index).encode()
    return b"".join(pieces) + words + len(words).to_bytes(8, "little")


def without(record, name):
    """The record as if it had never had this field."""
    bare = object.__new__(type(record))
    bare.__dict__.update({key: value for key, value in vars(record).items() if key != name})
    return bare


def endless() -> dict:
    tree: dict = {}
    tree["again"] = [tree]
    return tree


def many_times() -> list:
    tree: list = [0]
    for _ in range(38):
        tree = [tree, tree]
    return tree


def deep() -> list:
    tree: list = []
    for _ in range(60):
        tree = [tree]
    return tree


def with_batons(*params) -> State:
    return replace(STATE, batons=tuple(Baton(each) for each in params))


SPARSE = torch.zeros(3).to_sparse()
STATES = {
    "a plain dict": ({"round": 1, "batons": ()}, "state should be a State, found a dict"),
    "a baton": (Baton(torch.zeros(3)), "state should be a State, found a Baton"),
    "a tensor": (torch.zeros(3), "state should be a State"),
    "no batons": (replace(STATE, batons=()), "state.batons should be a list of at least 1"),
    "a missing field": (without(STATE, "batons"), "state.batons is missing"),
    "a negative round": (replace(STATE, round=-1), "state.round should be a whole number from 0 on, found -1"),
    "a round that is true": (replace(STATE, round=True), "state.round should be a whole number"),
    "another round": (replace(STATE, round=2), "of round 2, which its name does not say"),
    "a text for a baton": (replace(STATE, batons=("model",)), r"state.batons\[0\] should be a Baton, found a str"),
    "a number for a model": (with_batons(3), r"params should be a vector, found 3"),
    "other numbers": (with_batons(torch.zeros(3, dtype=torch.float64)), "should be a float32 vector"),
    "a matrix": (with_batons(torch.zeros(3, 3)), "should be a float32 vector"),
    "every second number": (with_batons(torch.zeros(6)[::2]), "should be a float32 vector"),
    "one number many times": (with_batons(torch.zeros(1).expand(10**12)), "a tensor with all its numbers"),
    "a sparse model": (with_batons(SPARSE), "should be an ordinary tensor"),
    "a model without numbers": (with_batons(torch.zeros(3, device="meta")), "should be an ordinary tensor"),
    "a parameter": (with_batons(torch.nn.Parameter(torch.zeros(3))), "should be an ordinary tensor"),
    "a list for a tree": (replace(STATE, shared=[1]), "state.shared should be plain data by name"),
    "a tree that holds itself": (replace(STATE, memo=endless()), "nested without end"),
    "a tree too deep": (replace(STATE, memo={"deep": deep()}), "nested without end"),
    "a sparse tensor in a tree": (replace(STATE, server={"h": SPARSE}), r"server\['h'\] should be an ordinary tensor"),
    "a negative client": (replace(STATE, participants=(-1,)), r"participants\[0\] should be a whole number"),
    "a line of another round": (replace(STATE, log=replace(LOG, round=7)), "state.log should be that of round 1"),
    "a line of texts": (replace(STATE, log=replace(LOG, clients="2")), "state.log.clients should be a whole number"),
    "a report of nothing": (
        replace(STATE, waiting=(Outcome(Chain(STATE.batons[0], (0,)), STATE.batons[0], (Report(0, None),)),)),
        r"reports\[0\].examples should be a whole number",
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", STATES)
def test_a_state_that_is_none_is_refused_by_its_place(name, tmp_path):
    content, message = STATES[name]
    placed(tmp_path, indexed(packed(content)))
    with pytest.raises(BadInput, match=rf"checkpoint .* is damaged \(.*{message}.*nothing was overwritten"):
        checkpoint.load(tmp_path)


def compressed(raw: bytes) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as new:
        for each in old.infolist():
            new.writestr(each.filename, old.read(each))
    return written.getvalue()


PIECE = packed(STATE)
FILES = {
    "nothing": b"",
    "seven bytes": b"7 bytes",
    "a length beyond the file": PIECE + (2**63).to_bytes(8, "little"),
    "an index of something else": PIECE + b"[1]" + (3).to_bytes(8, "little"),
    "an empty index": PIECE + b"[]" + (2).to_bytes(8, "little"),
    "no index": PIECE + b"nonsense" + (8).to_bytes(8, "little"),
    "a piece beyond the file": indexed(PIECE, start=10**12),
    "a piece before the file": indexed(PIECE, start=-5),
    "a client twice": indexed(PIECE, packed({0: {}}), clients=((0,), (0,))),
    "a client that is a text": indexed(PIECE, packed({"0": {}}), clients=((), ("0",))),
    "a fingerprint that is a number": indexed(PIECE, rounds={"lines": 1, "sha256": 5}),
    "fewer lines than none": indexed(PIECE, rounds={"lines": -1, "sha256": []}),
    "no archive": indexed(b"garbage"),
    "a compressed archive": indexed(compressed(packed({"x": torch.zeros(10**6)}))),
    "an old pickle": indexed(b"\x80\x02}q\x00."),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_checkpoint_is_refused(name, tmp_path):
    placed(tmp_path, FILES[name])
    with pytest.raises(BadInput, match="is damaged"):
        checkpoint.load(tmp_path)


MEMORIES = {
    "a list": [1],
    "another client": {1: {}},
    "no memory": {0: 7},
    "a memory by numbers": {0: {1: torch.zeros(3)}},
    "a memory that holds itself": {0: endless()},
    "sparse": {0: {"control": SPARSE}},
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", MEMORIES)
def test_memories_that_are_none_are_refused(name, tmp_path):
    placed(tmp_path, indexed(PIECE, packed(MEMORIES[name])))
    _, memories = checkpoint.load(tmp_path)
    with pytest.raises(BadInput, match="is damaged"):
        dict(memories.items())


def test_one_part_that_stands_for_billions_is_refused_in_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr("fedrelay.runs.contents.MOST", 10**5)
    placed(tmp_path, indexed(packed(replace(STATE, memo={"x": many_times()}))))
    with pytest.raises(BadInput, match="nested without end"):
        checkpoint.load(tmp_path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"participants": (0, 99)}, r"the checkpoint knows client 99, but there are 4"),
        ({"batons": (Baton(torch.zeros(650)), Baton(torch.zeros(7)))}, "the saved model has 7 numbers"),
    ],
)
def test_clients_and_models_that_there_are_not_are_refused_on_resume(tmp_path, changed, message):
    list(recorder(tmp_path / "run").run())
    state, memories = checkpoint.load(tmp_path / "run" / "checkpoint")
    checkpoint.save(tmp_path / "run" / "checkpoint", replace(state, **changed), dict(memories))
    with pytest.raises(BadInput, match=message):
        list(recorder(tmp_path / "run", rounds=4, resume=True).run())


def test_a_record_of_an_older_version_lacks_what_has_a_default_and_one_of_a_newer_has_more(tmp_path):
    old = without(replace(STATE, log=without(LOG, "metrics")), "groups")
    old.__dict__["weather"] = "fair"
    placed(tmp_path, indexed(packed(old)))
    state, _ = checkpoint.load(tmp_path)
    assert (state.groups, state.log.metrics, state.round) == (0, {}, 1)
