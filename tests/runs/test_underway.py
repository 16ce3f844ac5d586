"""A long round that is killed goes on from the last model of a pool, or client of a chain, to the same bits."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import fedrelay as fr
from fedrelay import Federation, Sgd, Task
from fedrelay.algorithms import elmy, fedelmy, fedseq, scaffold
from fedrelay.data import Dirichlet, digits
from fedrelay.engines import Auto, Inline, Pool
from fedrelay.errors import SAID
from fedrelay.models import MlpNorm
from fedrelay.runs import checkpoint, record
from fedrelay.runs import underway as module
from fedrelay.runs.record import Recorder
from fedrelay.runs.underway import FOLDER, UnderwayFiles, in_words, told
from fedrelay.types import Baton, Chain, Place, Work

METHODS = {
    "fedelmy": fr.method(fedelmy(models=3, warm_up=2), local=Sgd(lr=0.1, momentum=0.5, keep="best", validation=0.1)),
    "fedseq+elmy": fr.method(fedseq(max_clients=2), elmy(models=2), local=Sgd(lr=0.1), fraction=1.0),
    "fedseq+scaffold": fr.method(fedseq(max_clients=2), scaffold(), local=Sgd(lr=0.1), fraction=1.0),
}


def recorder(folder: Path, name: str, engine=Inline, *, resume: bool = False) -> Recorder:
    federation = Federation.split(digits(), Dirichlet(alpha=0.5), 4, 1)
    task = Task.of(MlpNorm(hidden=(8,)), federation)
    return Recorder(folder, METHODS[name], engine(federation, task, 1), federation.test, 2, resume=resume)


def fingerprint(folder: Path) -> str:
    return json.loads((folder / "summary.json").read_text())["params_sha256"]


KILLED = """
import os, signal, sys
from pathlib import Path

sys.path.insert(0, {tests!r})
import test_underway
from fedrelay.runs import underway

underway.SECONDS = underway.SHARE = 0
kept, keep = [], underway.UnderwayFiles.keep


def keep_and_die(self, name, *rest, **options):
    keep(self, name, *rest, **options)
    kept.append(name)
    if len(kept) == {times}:
        os.kill(os.getpid(), signal.SIGKILL)


underway.UnderwayFiles.keep = keep_and_die
if __name__ == "__main__":
    list(test_underway.recorder(Path({folder!r}), {name!r}).run())
"""


def killed(folder: Path, name: str, times: int) -> None:
    """A process that is killed when so many things of its first round are kept."""
    code = textwrap.dedent(KILLED).format(tests=str(Path(__file__).parent), folder=str(folder), name=name, times=times)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.fixture
def trained(monkeypatch) -> list[int]:
    """Which trainings of visits are made from now on."""
    made, train = [], Sgd.train

    def counted(self, baton, visit):
        made.append((visit.round, visit.hop, visit.part))
        return train(self, baton, visit)

    monkeypatch.setattr(Sgd, "train", counted)
    return made


# Of the first client: its warm-up, three models (or two), and the end of its visit.
@pytest.mark.parametrize(
    ("name", "times", "begins"),
    [
        ("fedelmy", 3, (1, 0, 3)),
        ("fedelmy", 8, (1, 1, 3)),
        ("fedseq+elmy", 2, (1, 0, 2)),
        ("fedseq+scaffold", 1, (1, 1, 0)),
    ],
)
def test_a_run_that_is_killed_in_a_pool_goes_on_there_with_the_same_bits(tmp_path, trained, name, times, begins):
    killed(tmp_path / "killed", name, times)
    assert list((tmp_path / "killed" / "checkpoint" / FOLDER).glob("*.pt"))
    list(recorder(tmp_path / "whole", name).run())
    whole, before = list(trained), len(trained)
    list(recorder(tmp_path / "killed", name, resume=True).run())
    again = trained[before:]
    assert fingerprint(tmp_path / "killed") == fingerprint(tmp_path / "whole")
    assert again == whole[whole.index(begins) :]
    assert not (tmp_path / "killed" / "checkpoint" / FOLDER).exists()


def test_another_engine_goes_on_from_there_too(tmp_path):
    killed(tmp_path / "killed", "fedseq+elmy", 2)
    list(recorder(tmp_path / "whole", "fedseq+elmy").run())
    pooled = recorder(tmp_path / "killed", "fedseq+elmy", Pool, resume=True)
    (tmp_path / "killed" / "config.toml").write_text(
        (tmp_path / "killed" / "config.toml").read_text().replace('"Inline"', '"Pool"')
    )
    with pooled.engine:
        list(pooled.run())
    assert fingerprint(tmp_path / "killed") == fingerprint(tmp_path / "whole")


@pytest.fixture
def at_once(monkeypatch) -> None:
    """Everything is kept, however short it was."""
    monkeypatch.setattr(module, "SECONDS", 0.0)
    monkeypatch.setattr(module, "SHARE", 0)
    monkeypatch.setattr(module, "GLANCE", 0.0)


def test_what_was_kept_of_other_work_is_not_taken(tmp_path, at_once):
    kept = UnderwayFiles(tmp_path / FOLDER)
    kept.keep("chain-0", lambda: "this", lambda: {"models": torch.ones(3)})
    again = pickle.loads(pickle.dumps(kept))
    assert torch.equal(again.find("chain-0", lambda: "this")["models"], torch.ones(3))
    assert again.find("chain-0", lambda: "that") is None
    assert again.find("chain-1", lambda: "this") is None
    kept.clear()
    assert not (tmp_path / FOLDER).exists()
    assert again.find("chain-0", lambda: "this") is None


def test_a_damaged_file_costs_only_time(tmp_path, at_once, caplog):
    SAID.clear()
    kept = UnderwayFiles(tmp_path / FOLDER)
    kept.keep("chain-0", lambda: "this", lambda: {"models": torch.ones(3)})
    path = tmp_path / FOLDER / "chain-0.pt"
    path.write_bytes(path.read_bytes()[:-9])
    assert UnderwayFiles(tmp_path / FOLDER).find("chain-0", lambda: "this") is None
    assert "cannot be read" in caplog.text


@pytest.mark.parametrize("error", [OSError, RuntimeError])
def test_a_disk_that_takes_no_more_costs_no_client(tmp_path, at_once, caplog, monkeypatch, error):
    SAID.clear()

    def full(*_, **options):
        raise error("No space left on device")

    monkeypatch.setattr(module.files, "writing", full)
    kept = UnderwayFiles(tmp_path / FOLDER)
    kept.keep("chain-0", lambda: "this", lambda: {"models": torch.ones(3)})
    assert "how far the round is cannot be kept" in caplog.text
    assert "No space left" in caplog.text


def test_short_rounds_write_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(UnderwayFiles, "_writing", None)
    list(recorder(tmp_path, "fedelmy").run())
    assert not (tmp_path / "checkpoint" / FOLDER).exists()


def test_a_chain_that_lost_everybody_is_run_again(tmp_path, at_once):
    """What made it fail may have an end before the run goes on."""
    engine = recorder(tmp_path, "fedelmy").engine
    for work in (Fails(), Sgd(steps=1)):
        engine.keep_in(UnderwayFiles(tmp_path / FOLDER))
        (outcome,) = engine.run(work, [Chain(Baton(engine.task.init(1)), (0, 1))], {}, 1)
        assert len(outcome.reports) == (0 if isinstance(work, Fails) else 2)
        assert (tmp_path / FOLDER / "chain-0-hops.pt").exists() is bool(outcome.reports)


@dataclass(frozen=True)
class Fails(Work):
    """There is something wrong with the machine."""

    def __call__(self, baton, visit, /):
        raise MemoryError


def test_what_is_kept_can_be_read_by_its_owner_only(tmp_path, at_once):
    kept = UnderwayFiles(tmp_path / FOLDER)
    kept.keep("chain-0", lambda: "this", lambda: {"models": torch.ones(3)})
    kept.tell("chain-0", {"hop": (1, 2)})
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / FOLDER).iterdir()} == {0o600}


def test_a_round_that_took_long_is_in_a_checkpoint_whatever_its_number(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "SECONDS", 0.0)
    rounds = recorder(tmp_path, "fedelmy").run()
    next(rounds)
    assert checkpoint.newest_round(tmp_path / "checkpoint") == 1
    rounds.close()


def test_an_engine_that_chose_how_to_run_does_not_choose_again_in_the_same_round(tmp_path, monkeypatch):
    """The bits depend on the choice, which is in config.toml only when the round has ended."""
    federation = Federation.split(digits(), Dirichlet(alpha=0.5), 4, 1)
    first, again = (Auto(federation, Task.of(MlpNorm(hidden=(8,)), federation), 1) for _ in range(2))
    monkeypatch.setattr(Auto, "_decide", lambda self, *_: self.choose({"name": "inline", "threads": 3}))
    for engine in (first, again):
        engine.keep_in(UnderwayFiles(tmp_path / FOLDER))
        list(engine.run(Sgd(steps=1), [Chain(Baton(engine.task.init(1)), (0,))], {}, 1))
        assert engine.settings == {"name": "inline", "threads": 3}
        monkeypatch.setattr(Auto, "_decide", None)


def test_whoever_watches_sees_hops_and_models_of_one_chain_and_the_hops_of_several(tmp_path, at_once):
    kept = UnderwayFiles(tmp_path / FOLDER)
    assert in_words(tmp_path / FOLDER) == ""
    one = Place(kept, "chain-0", str, (0, 7, 3))
    one.tell("hop", 3, 10)
    one.tell("model", 2, 5)
    assert [each.clients for each in told(tmp_path / FOLDER)] == [(0, 7, 3)]
    assert in_words(tmp_path / FOLDER) == "hop 3/10, model 2/5"
    Place(kept, "chain-4", str).tell("hop", 1, 4)
    assert in_words(tmp_path / FOLDER) == "hop 4/14"
    (tmp_path / FOLDER / "other.json").write_text("[1]")
    assert in_words(tmp_path / FOLDER) == "hop 4/14"


def test_a_run_tells_how_far_its_pool_is(tmp_path, at_once, monkeypatch):
    seen = []
    monkeypatch.setattr(UnderwayFiles, "tell", lambda self, name, figures, clients: seen.append(dict(figures)))
    next(recorder(tmp_path, "fedelmy").run())
    assert seen[:2] == [{"hop": (1, 4)}, {"hop": (1, 4), "model": (0, 3)}]
    assert seen[4:7] == [{"hop": (hop, 4), "model": (model, 3)} for hop, model in ((1, 3), (2, 3), (2, 0))]
