"""Runs whose clients bring their data: exemplars of the server's, and tests on what clients hold out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from needs import posix

from fedrelay import BadInput
from fedrelay.data.augment import Normalise
from fedrelay.data.examples import Examples
from fedrelay.data.federation import Source
from fedrelay.engines.remote.trees import Malformed, decode, encode
from fedrelay.remote.exemplars import fingerprint, received, told, with_exemplars
from fedrelay.remote.hosting import Serving
from fedrelay.remote.participant import Belongings, Participant

NAMES = ("east", "north", "south")
FILE = """
rounds = 2
seed = 1
[data]
name = "table"
path = "not looked at"
[model]
name = "mlp"
hidden = [8]
[algorithm]
name = "fedseq"
groups = 2
traits = { name = "confidence", epochs = 1 }
[local]
lr = 0.1
batch = 8
[evaluate]
every = 1
"""


def arrays(path: Path, rows: int, seed: int, *, most: int = 3) -> Path:
    """Three classes around three places."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, most, rows)
    y[:most] = np.arange(most)
    np.savez(path, x=(rng.normal(size=(rows, 4)) + 3 * np.eye(4)[y]).astype(np.float32), y=y)
    return path


@posix
def test_clients_with_arrays_of_their_own_are_sent_exemplars_and_test_on_what_they_hold_out(site):
    path, folder = site.folder / "experiment.toml", site.folder / "run"
    path.write_text(FILE, encoding="utf-8")
    words = (
        "--clients",
        ",".join(NAMES),
        "--listen",
        "127.0.0.1:0",
        "--own-data",
        "--hold-out",
        "0.25",
        "--out",
        folder,
    )
    server = site.start("serve", path, *words, "--exemplars", arrays(site.folder / "public.npz", 12, 9))
    port, clients = server.port, []
    for place, name in enumerate(NAMES):
        data = arrays(site.folder / f"{name}.npz", 20 + 8 * place, place, most=3 if place else 2)
        words = (
            "--server",
            f"127.0.0.1:{port}",
            "--name",
            name,
            "--data",
            data,
            "--home",
            site.folder / f"home-{name}",
        )
        clients.append(site.start("join", *words, name=name))
    assert server.wait() == 0, server.said
    assert [client.wait() for client in clients] == [0] * 3, clients[0].said
    assert "takes part as north, with 21 examples to train on and 7 to test on" in clients[1].said
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["describing"]["messages"] for line in lines] == [6 + 6, 0]  # what is read and agreed on, and traits
    assert not any(line["drops"] or "undescribed" in line for line in lines)
    found = json.loads((folder / "clients.json").read_text(encoding="utf-8"))["clients"]
    assert [(one["name"], one["examples"], one["tested"]) for one in found] == [
        ("east", 15, 5),
        ("north", 21, 7),
        ("south", 27, 9),
    ]
    right = sum(one["tested"] * one["metrics"]["accuracy"] for one in found)
    assert lines[-1]["accuracy"] == pytest.approx(right / 21)
    assert right == pytest.approx(round(right))
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["final_accuracy"] == lines[-1]["accuracy"]
    assert summary["clients"]["clients"] == 3
    sent = [json.loads(line) for line in (site.folder / "home-east" / "sent.jsonl").read_text().splitlines()]
    assert [line["work"] for line in sent[1:]] == ["plan.grouping.traits", "update", "test", "update", "test"]
    assert sent[3]["model"] == 0
    assert set(sent[3]["metrics"]) == {"loss", "accuracy"}


def source(rows: int) -> Source:
    y = torch.arange(rows) % 3
    test = Examples(torch.arange(4 * rows, dtype=torch.float32).reshape(rows, 4), y)
    return Source("test", train=test, test=test, classes=3)


def test_exemplars_are_taken_of_what_the_server_tests_on_and_are_not_tested_on():
    found = with_exemplars(source(30), {"exemplars": 4}, seed=1)
    assert found.public is not None
    assert np.bincount(found.public.labels).tolist() == [4, 4, 4]
    assert np.bincount(found.test.labels).tolist() == [6, 6, 6]


def test_exemplars_that_the_server_names_are_all_taken_and_its_test_stays_whole():
    given = source(6).test
    found = with_exemplars(source(30), {}, seed=1, given=given)
    assert found.public is given
    assert len(found.test) == 30


@pytest.mark.parametrize(
    ("rows", "data", "given", "says"),
    [
        (0, {"exemplars": 4}, None, "--test PATH says what, or --exemplars PATH names exemplars"),
        (30, {"exemplars": 4}, source(6).test, "give one of them"),
        (30, {"exemplars": 20}, None, "20 of them cannot be held out"),
    ],
)
def test_exemplars_that_cannot_be_are_refused(rows, data, given, says):
    with pytest.raises(BadInput, match=says):
        with_exemplars(source(rows), data, seed=1, given=given)


def test_exemplars_come_to_a_client_as_its_own_examples_are():
    scale = Normalise((0.5,), (0.5,))
    pictures = Examples(torch.randint(0, 255, (5, 2, 2, 1), dtype=torch.uint8), torch.arange(5), scale)
    sent = decode(encode(told(pictures)))
    found = received(sent, Examples(pictures.x[:1], pictures.y[:1], scale))
    assert torch.equal(found.take(slice(0, 5))[0], pictures.take(slice(0, 5))[0])
    assert fingerprint(sent) == fingerprint(told(pictures))
    assert received({}, pictures) is None
    with pytest.raises(Malformed, match="another form"):
        received(sent, Examples(torch.zeros(1, 3, 3, 1, dtype=torch.uint8), pictures.y[:1], scale))
    with pytest.raises(Malformed, match="another form"):
        received({"x": pictures.x}, pictures)


def test_a_share_that_leaves_nothing_to_train_on_is_refused():
    with pytest.raises(BadInput, match="--hold-out must be below 1, not 1"):
        Serving({}, hold_out=1.0)


@pytest.mark.parametrize("share", [-0.1, 1.0, 7.0, float("nan")])
def test_a_client_refuses_to_hold_out_what_is_no_share(share, tmp_path):
    participant = Participant(Belongings(tmp_path))
    welcome = {"is": "welcome", "number": 0, "name": "north", "data": {}, "own": False}
    prepared = {"is": "prepared", "run": "0" * 16, "digest": "", "tables": {}, "agreed": {}, "clients": 1}
    with pytest.raises(Malformed, match="is no share of our data"):
        participant.prepare(welcome, {**prepared, "exemplars": {}, "hold_out": share})
