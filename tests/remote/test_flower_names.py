"""Who a node of a Flower federation is: by its word, or proven by its keys; and what it says is bounded and plain."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import ssl
import warnings
from pathlib import Path
from types import SimpleNamespace

import flower_grid
import numpy as np
import pytest
from flower_grid import FILE, NAMES, expected, grid_of, lines_of, run, tables
from flower_grid import quick as quick
from scenes import clock

from fedrelay.engines.remote.trees import decode, encode
from fedrelay.errors import BadInput, DroppedClients, RunFailed
from fedrelay.remote import keys
from fedrelay.remote import proof as proofs
from fedrelay.remote.flower import client, server
from fedrelay.remote.flower.node import Node
from fedrelay.remote.flower.records import LONGEST, Parcel, packed, unpacked
from fedrelay.remote.flower.resident import Attendant
from fedrelay.remote.proof import Asked, Signing, check_asked, new_challenge, proof_of, proven
from fedrelay.remote.reception import Refused
from fedrelay.remote.refusals import NotMeant
from fedrelay.runs import checkpoint
from fedrelay.system.console import PlainLines


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("keys")
    keys.make(made / "keys", hosts=["127.0.0.1"], clients=[*NAMES, "gone"])
    keys.revoke(made / "keys", "gone")
    shutil.copytree(made / "keys" / "clients" / "north", made / "old")
    keys.renew(made / "keys", "north")
    keys.make(made / "others", hosts=["127.0.0.1"], clients=["north"])
    return made


def test_with_keys_a_name_must_be_proven_and_the_model_is_the_simulations(folder, tmp_path, caplog):
    grid = grid_of(tmp_path, beginning=1.0, keys=str(folder / "keys"))
    for node in grid.configs.values():
        node["keys"] = str(folder / "keys" / "clients" / node["name"])
    grid.configs |= {
        number: {"name": "north", "home": str(tmp_path / str(number)), **told}
        for number, told in {
            1: {},
            2: {"keys": str(folder / "old")},
            3: {"keys": str(folder / "keys" / "clients" / "south")},
        }.items()
    }
    _, recorder = run(grid, tables())
    assert recorder.summary().params_sha256 == expected(tables(), tmp_path)
    said = "\n".join(sorted(record.message for record in caplog.records if "does not take part" in record.message))
    assert "node 1 does not take part: the server asks for keys: say keys=… in --node-config" in said
    assert "node 2 does not take part: north has newer keys than these" in said
    assert "node 3 does not take part: north: it cannot use its data or its disk" in said  # these are others' keys


def test_a_signature_is_good_for_one_question_and_one_node(folder):
    kit, challenge = folder / "keys" / "clients" / "north", new_challenge()
    proof = proof_of(kit, challenge, name="north", node=7)
    name, pem = proven(proof, challenge, node=7)
    assert name == "north"
    assert keys.why_not(folder / "keys", name, pem) is None
    for other in ({"challenge": new_challenge(), "node": 7}, {"challenge": challenge, "node": 8}):
        with pytest.raises(Refused, match="does not prove who it is"):
            proven(proof, other["challenge"], node=other["node"])
    theirs = proof_of(folder / "keys" / "clients" / "south", challenge, name="south", node=7)
    for bad in (
        {**proof, "signature": theirs["signature"]},
        {**proof, "signature": "zz"},
        {**proof, "certificate": "-"},
    ):
        with pytest.raises(Refused, match="does not prove who it is"):
            proven(bad, challenge, node=7)
    with pytest.raises(BadInput, match="has the keys of 'south', and this client is called 'north'"):
        proof_of(folder / "keys" / "clients" / "south", challenge, name="north", node=7)


KIT = "keys/clients/north"
MEANT = Asked(71, 7, ("run", "digest"), b"describe your data")


def signed(folder: Path, run: int = 71) -> str:
    return Signing(folder, run)(7, MEANT.message, *MEANT.about)


def test_a_client_with_keys_listens_only_to_the_server_of_the_same_keys(folder, tmp_path, monkeypatch):
    check_asked(folder / KIT, signed(folder / "keys"), MEANT)
    proof = json.loads(signed(folder / "keys"))
    posing = folder / "keys" / "clients" / "south"  # a client's key, vouched for by the same authority
    with monkeypatch.context() as patch:
        patch.setattr(keys, "SERVER", keys.CLIENT)
        posed = signed(posing)
    keys.make(tmp_path / "keys", hosts=["127.0.0.1"], clients=["north"])
    with monkeypatch.context() as patch:
        patch.setattr(keys, "datetime", clock(days=-10))
        keys.renew_server(tmp_path / "keys", days=5)
        expired = signed(tmp_path / "keys")
    with pytest.raises(NotMeant, match="the server's certificate has expired, or a clock is wrong"):
        check_asked(tmp_path / KIT, expired, MEANT)
    with pytest.raises(NotMeant, match="this client has keys, and the server does not prove who it is: say keys=…"):
        check_asked(folder / KIT, "", MEANT)
    for strange in (signed(folder / "others"), posed):
        with pytest.raises(NotMeant, match="none that the authority of this client's keys has given to a server"):
            check_asked(folder / KIT, strange, MEANT)
    bad = [
        (signed(folder / "keys", run=72), MEANT),
        *((json.dumps(proof), MEANT._replace(**other)) for other in ALTERED),
        *((json.dumps({**proof, **other}), MEANT) for other in ({"signature": "zz"}, {"certificate": "-"}, {"is": 3})),
        ("nonsense", MEANT),
    ]
    for strange, asked in bad:
        with pytest.raises(NotMeant, match="the server does not prove who it is: its signature is not of the key"):
            check_asked(folder / KIT, strange, asked)


ALTERED = ({"run": 72}, {"node": 8}, {"about": ("run", "other")}, {"message": b"describe all your data"})


@pytest.mark.parametrize(
    ("theirs", "says"),
    [
        ({}, "this client has keys, and the server does not prove who it is: say keys=… in --run-config"),
        ({"keys": "others"}, "the server's certificate is none that the authority of this client's keys has given"),
    ],
    ids=["missing", "of another authority"],
)
def test_a_server_that_proves_nothing_learns_nothing_and_both_sides_say_why(theirs, says, folder, tmp_path, caplog):
    told = {key: str(folder / value) for key, value in theirs.items()}
    grid = grid_of(tmp_path, beginning=0.75, **told)
    careful = next(node for node in grid.configs.values() if node["name"] == "north")
    careful["keys"] = str(folder / KIT)
    if theirs:  # the others have what this server asks for
        keys.add(folder / "others", [name for name in NAMES if name != "north"])
        for node in grid.configs.values():
            node.setdefault("keys", str(folder / "others" / "clients" / node["name"]))
    run(grid, tables())
    assert f"does not take part: north: {says}" in caplog.text  # the server's log
    assert f"this client cannot take part: {says}" in caplog.text
    assert lines_of(tmp_path / "run")[-1]["clients"] == 3
    assert (tmp_path / "north" / "sent.jsonl").read_text(encoding="utf-8") == ""
    assert sorted(path.name for path in (tmp_path / "north").iterdir()) == ["sent.jsonl"]


@pytest.mark.parametrize("kind", ["prepared", "visit", "refused", "welcome"])
def test_whatever_a_client_with_keys_is_asked_must_be_signed(kind, folder, tmp_path):
    attendant = Attendant(Node("north", str(tmp_path / "home"), keys=str(folder / KIT), id=7))
    said = decode(attendant.answer(Parcel(bytes(encode({"is": kind})), origin=71)))
    assert (said["is"], said["reason"][:21]) == ("declined", "this client has keys,")


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("a003020102", "a003020107"),
        ("06082a8648ce3d030107", "06082a8648ce3d03017f"),
        ("06072a8648ce3d0201", "06072a8648ce3d027f"),
    ],
    ids=["version", "curve", "kind of key"],
)
def test_a_certificate_that_cannot_even_be_read_is_refused_like_any_other(part, other, folder):
    """A library has errors of its own for each of these, and a stranger must not end the server by any."""
    proof = proof_of(folder / "keys" / "clients" / "north", "c", name="north", node=7)
    der = ssl.PEM_cert_to_DER_cert(proof["certificate"])
    assert bytes.fromhex(part) in der
    bad = der.replace(bytes.fromhex(part), bytes.fromhex(other))
    with pytest.raises(Refused, match="does not prove who it is"):
        proven({**proof, "certificate": ssl.DER_cert_to_PEM_cert(bad)}, "c", node=7)


def test_a_client_whose_key_is_revoked_while_the_run_goes_on_is_let_go(tmp_path, caplog):
    keys.make(tmp_path / "keys", hosts=["127.0.0.1"], clients=NAMES)
    grid = grid_of(tmp_path, beginning=1.0, keys=str(tmp_path / "keys"))
    for node in grid.configs.values():
        node["keys"] = str(tmp_path / "keys" / "clients" / node["name"])
    recorder = server.host_of(grid, grid.settings, tables(), run=flower_grid.RUN).open()
    rounds = recorder.run()
    assert next(rounds).clients == 4
    keys.revoke(tmp_path / "keys", "west")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DroppedClients)
        assert [log.clients for log in rounds] == [3, 3]
    assert (
        "west is lost: the key of west was revoked: `fedrelay keys renew` at the server makes a new one" in caplog.text
    )
    assert "the server does not let us in: the key of west was revoked" in caplog.text


@pytest.mark.parametrize(("hours", "valid"), [(-1, True), (1, True), (-30, False), (24 * 366, False)])
def test_a_clock_an_hour_off_does_not_matter_to_signatures(hours, valid, folder, monkeypatch):
    made = signed(folder / "keys"), proof_of(folder / KIT, "c", name="north", node=7)
    monkeypatch.setattr(proofs, "datetime", clock(hours=hours))
    if valid:
        check_asked(folder / KIT, made[0], MEANT)
        proven(made[1], "c", node=7)
        return
    with pytest.raises(NotMeant, match="or a clock is wrong"):
        check_asked(folder / KIT, made[0], MEANT)
    with pytest.raises(Refused, match="or a clock is wrong"):
        proven(made[1], "c", node=7)


def test_a_run_that_fails_says_so_in_its_log(tmp_path, caplog, monkeypatch):
    """A disk that is full at the second checkpoint."""
    grid, save, saved = grid_of(tmp_path), checkpoint.save, list[int]()

    def full(folder, state, *args):
        saved.append(state.round)
        if state.round:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return save(folder, state, *args)

    monkeypatch.setattr(server, "experiment_in", lambda places: {**tables(), "checkpoint": 1})
    monkeypatch.setattr(server, "logged", lambda: None)
    monkeypatch.setattr(checkpoint, "save", full)
    with pytest.raises(RunFailed):
        server.main(grid, SimpleNamespace(run_config=grid.settings, run_id=flower_grid.RUN))
    assert saved[:2] == [0, 1]
    assert "cannot be written (No space left on device): make room or mend it" in caplog.text


def test_keys_that_are_not_there_are_refused_before_anybody_comes(tmp_path):
    grid = grid_of(tmp_path, keys=str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match="expected a folder that `fedrelay keys make` has written"):
        server.host_of(grid, grid.settings, tables())


def test_what_a_node_says_of_why_it_does_not_take_part_is_bounded(tmp_path, caplog, monkeypatch):
    with pytest.raises(ValueError, match="more than 2000 characters"):
        unpacked(packed(Parcel(declined="x" * (LONGEST + 1))))
    grid, rest = grid_of(tmp_path), client.asked

    def asked(node, parcel):
        if node.name == "west":
            raise client.BadInput("never told")
        return rest(node, parcel)

    monkeypatch.setattr(client, "asked", asked)
    monkeypatch.setattr(client, "told_of", lambda error: "y" * 10**6)
    run(grid, tables())
    assert "does not take part: its reply cannot be taken: it says more than 2000 characters" in caplog.text
    assert max(len(record.message) for record in caplog.records) < 1000
    assert lines_of(tmp_path / "run")[-1]["clients"] == 3


def test_lines_of_a_log_are_one_each_and_steer_no_terminal(monkeypatch):
    said = "north: \x1b]0;title\x07\x1b[2J\nINFO all is well\r\u2028again\x9b31m"
    line = PlainLines("%(message)s").format(logging.LogRecord("fedrelay", 30, "", 1, "%s", (said,), None))
    assert line == "north: ?]0;title??[2J | INFO all is well | again?31m"
    log = logging.getLogger("fedrelay")
    for name in ("handlers", "level", "propagate"):  # others of this process log as before
        monkeypatch.setattr(log, name, [] if name == "handlers" else getattr(log, name))
    server.logged()
    assert isinstance(log.handlers[0].formatter, PlainLines)


def test_clients_whose_data_does_not_go_with_the_others_are_refused_and_the_run_begins_with_the_rest(tmp_path, caplog):
    rng = np.random.default_rng(3)
    for name in NAMES:
        x = rng.normal(size=(30, 5 if name == "east" else 4))
        np.savez(tmp_path / f"{name}.npz", x=x, y=(x[:, 0] > 0).astype(int))
    grid = grid_of(tmp_path, beginning=0.75, **{"own-data": True})
    for node in grid.configs.values():
        node["data"] = str(tmp_path / f"{node['name']}.npz")
    run(grid, tables(FILE.replace("fedseq+scaffold", "fedavg").replace("groups = 2", "")))
    assert "east does not take part: the clients' arrays differ: east has inputs [5] of" in caplog.text
    assert "the server does not let us in: this client's data does not go with that of most others" in caplog.text
    assert {line["clients"] for line in lines_of(tmp_path / "run")} == {3}


def test_exemplars_are_sent_to_a_node_once(tmp_path):
    rng = np.random.default_rng(3)
    for name in (*NAMES, "public"):
        x = rng.normal(size=(40, 500)).astype(np.float32)
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.arange(40) % 2)
    told = {"own-data": True, "exemplars": str(tmp_path / "public.npz"), "grace": 60.0}
    grid, sizes = grid_of(tmp_path, beginning=1.0, **told), dict[int, list[int]]()
    for node in grid.configs.values():
        node["data"] = str(tmp_path / f"{node['name']}.npz")
    push, lost = grid.push_messages, []

    def counted(messages):
        for message in messages:
            sizes.setdefault(message.metadata.dst_node_id, []).append(len(unpacked(message.content).message))
            yield from push([message])

    def fail(node, kind):
        if node == 99 and kind == "train" and len(lost) < 2:
            lost.append(node)
            return flower_grid.NODE_UNAVAILABLE
        return 0

    grid.push_messages, grid.fail = counted, fail
    _, recorder = run(grid, tables(FILE.replace("fedseq+scaffold", "fedavg").replace("groups = 2", "")))
    assert len(lost) == 2
    assert recorder.summary().drops == 0
    assert sum(size > 40 * 500 * 4 for size in sizes[99]) == 1
    assert json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))["rounds"] == 3
