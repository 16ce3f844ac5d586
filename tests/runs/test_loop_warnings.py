"""A run that loses clients goes on, and says so once: a warning in Python, lines in the terminal."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass

import pytest
from rich.console import Console

import fedrelay as fr
from fedrelay.report.progress import follow
from fedrelay.types import Baton, Report, Work


@dataclass(frozen=True)
class Failing(Work):
    """The clients with these numbers raise."""

    who: tuple[int, ...] = (1,)

    def __call__(self, baton, visit, /):
        if visit.client.id in self.who:
            raise ValueError("the disk is full")
        return Baton(baton.params, baton.weight + 1.0), visit.memory, Report(visit.client.id, visit.client.size)


def engine_of(clients: int) -> fr.engines.Inline:
    federation = fr.Federation.split(fr.data.digits(), fr.data.Iid(), clients, 0)
    return fr.engines.Inline(federation, fr.Task.of(fr.models.Logistic(), federation))


def test_a_client_that_is_lost_raises_one_warning_a_run():
    algorithm = fr.method(local=Failing((1, 2)))
    with pytest.warns(fr.DroppedClients) as caught:
        states = list(fr.train(algorithm, engine_of(4), rounds=3))
    assert [len(state.log.drops) for state in states] == [2, 2, 2]
    (warning,) = caught
    text = str(warning.message)
    assert text.startswith("round 1: client ")
    assert "and 1 more in this round" in text
    assert "the disk is full" in text
    assert warning.filename == __file__


def test_a_run_without_losses_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(fr.train(fr.method(local=Failing(())), engine_of(3), rounds=2))) == 2


def test_a_recorded_run_warns_in_python_and_the_terminal_has_lines_instead(tmp_path):
    engine = engine_of(3)
    parts = {"algorithm": fr.method(local=Failing()), "engine": engine, "test": engine.federation.test, "rounds": 4}
    with pytest.warns(fr.DroppedClients, match="client 1 was dropped"):
        list(fr.Recorder(tmp_path / "python", **parts).run())
    shown = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        follow(fr.Recorder(tmp_path / "terminal", **parts), Console(file=shown, width=500))
    assert shown.getvalue().count("client 1 was dropped") == 1
    assert "4 visits were lost, of 1 client" in shown.getvalue()
