"""rounds.jsonl is what was written, or it is refused; what no checkpoint has counted is written anew."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from test_claim import recorder

import fedrelay as fr
from fedrelay import BadInput, Federation, Recorder, Task, report
from fedrelay.algorithms import fedseq
from fedrelay.data import Iid, digits
from fedrelay.engines import Inline
from fedrelay.models import Logistic
from fedrelay.runs import checkpoint, loop
from fedrelay.runs.output import load_trained
from fedrelay.runs.rounds import Noted, read_rounds


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    list(recorder(folder).run())
    return folder


@pytest.fixture
def run(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


def timeless(folder):
    return [replace(log, seconds=0.0) for log in read_rounds(folder / "rounds.jsonl")]


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_no_flipped_bit_is_ever_read_as_a_record(run):
    path = run / "rounds.jsonl"
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), 41):
        path.write_bytes(flipped(content, bit))
        with pytest.raises(BadInput, match=r"rounds\.jsonl was changed or damaged"):
            report.load(run)
    path.write_bytes(content)
    assert len(report.load(run).rounds) == 3


def test_without_its_checkpoint_a_flipped_bit_is_refused_in_our_words_or_does_no_harm(run):
    shutil.rmtree(run / "checkpoint")
    path = run / "rounds.jsonl"
    content = path.read_bytes()
    read = 0
    for bit in range(0, 8 * len(content), 41):
        path.write_bytes(flipped(content, bit))
        try:
            report.table([report.load(run)])
            read += 1
        except BadInput:
            pass
    assert 0 < read < len(content) * 8 / 41  # digits that became others cannot be known


def test_a_changed_line_is_refused_on_resume_and_left_alone(run):
    path = run / "rounds.jsonl"
    lines = path.read_text().splitlines()
    line = json.loads(lines[0])
    changed = "\n".join([json.dumps({**line, "accuracy": 0.99}), *lines[1:]]) + "\n"
    path.write_text(changed)
    with pytest.raises(BadInput, match=r"its first 3 lines are not those that the checkpoint has counted"):
        list(recorder(run, rounds=4, resume=True).run())
    assert path.read_text() == changed


def test_a_lost_line_is_refused_on_resume(run):
    path = run / "rounds.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(BadInput, match="was changed or damaged"):
        list(recorder(run, rounds=4, resume=True).run())


@pytest.mark.parametrize("more", [b"\xff\x00\n", b"{}\n", b"[1]\n" * 3, b'{"round": 9}\n{"round":', b"\n"])
def test_whatever_stands_after_the_checkpoint_is_written_anew(run, more, tmp_path):
    with (run / "rounds.jsonl").open("ab") as file:
        file.write(more)
    list(recorder(run, rounds=4, resume=True).run())
    list(recorder(tmp_path / "once", rounds=4).run())
    assert timeless(run) == timeless(tmp_path / "once")


def test_a_checkpoint_of_before_there_was_a_fingerprint_is_taken_up(run, tmp_path):
    state, memories = checkpoint.load(run / "checkpoint")
    checkpoint.save(run / "checkpoint", state, dict(memories))  # as older versions did: nothing is noted
    assert checkpoint.noted(run / "checkpoint") is None
    lines = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    for line in lines:
        del line["groups"]  # which they did not have
    (run / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + "{}\n")
    list(recorder(run, rounds=4, resume=True).run())
    list(recorder(tmp_path / "once", rounds=4).run())
    assert timeless(run) == timeless(tmp_path / "once")
    assert checkpoint.noted(run / "checkpoint").lines == 4


def test_a_line_with_fields_that_we_do_not_know_stays_as_it_was_written(run):
    path = run / "rounds.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[0] = lines[0].replace(b"}\n", b', "weather": "fair"}\n')
    path.write_bytes(b"".join(lines))
    state, memories = checkpoint.load(run / "checkpoint")
    checkpoint.save(run / "checkpoint", state, dict(memories))
    list(recorder(run, rounds=4, resume=True).run())
    assert path.read_bytes().splitlines(keepends=True)[0] == lines[0]


def test_two_fingerprints_are_known_while_a_line_is_changed():
    noted = Noted(1, ("4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865",) * 1 + ("other",))
    assert noted.fits([b"1\n"])  # sha256sum of "1\n"
    assert noted.fits([b"1\n", b"2\n"])
    assert not noted.fits([b"2\n"])
    assert not noted.fits([])


@pytest.mark.parametrize(
    ("old", "new"), [("model", "modal"), ("logistic", "logistik"), ("shape", "shade"), ("10", "1x")]
)
def test_a_damaged_description_of_the_model_is_refused_in_our_words(run, old, new):
    path = run / "model.json"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(BadInput, match=r"model"):
        load_trained(run).network()


def test_a_line_says_who_trained_after_whom_unless_they_are_too_many(tmp_path, monkeypatch):
    """Chains of two of four clients: everybody once, and the line is read back as it was made."""
    federation = Federation.split(digits(), Iid(), 4)
    method = fr.method(fedseq(max_clients=2), fraction=1.0)
    engine = Inline(federation, Task.of(Logistic(), federation))
    rounds = Recorder(tmp_path / "run", method, engine, federation.test, rounds=2).run()
    first = next(rounds)
    assert [len(chain) for chain in first.order] == [2, 2]
    assert sorted(client for chain in first.order for client in chain) == [0, 1, 2, 3]
    monkeypatch.setattr(loop, "MOST_ORDERED", 3)
    assert next(rounds).order == ()
    assert [log.order for log in read_rounds(tmp_path / "run" / "rounds.jsonl")] == [first.order, ()]
