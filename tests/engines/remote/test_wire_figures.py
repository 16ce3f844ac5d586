"""What real messages took: in the lines of a run, on its page, and in the terminal while it goes on."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import replace
from pathlib import Path

import in_process
import pytest
import zoo
from rich.console import Console

import fedrelay as fr
from fedrelay import Sgd, report, seeds
from fedrelay.algorithms import fedseq
from fedrelay.cli import remote as cli
from fedrelay.engines import Inline
from fedrelay.engines.remote import Came, Gone, Patience
from fedrelay.engines.remote.history import History
from fedrelay.engines.remote.messages import Hop
from fedrelay.remote.live import LiveTable, line_of
from fedrelay.report.progress import follow
from fedrelay.runs import start
from fedrelay.runs.json_files import Damaged
from fedrelay.runs.record import Recorder
from fedrelay.runs.rounds import decoded, encode
from fedrelay.system.console import PlainConsole
from fedrelay.visits.traits import ClassHistogram

ROUNDS = 2


@pytest.fixture
def world(tmp_path):
    algorithm = fr.method(fedseq(traits=ClassHistogram(), groups=4), local=Sgd(batch=16, lr=0.1), fraction=1.0)
    federation = zoo.federation_for(algorithm)
    engine = in_process.remote(algorithm, federation, zoo.task_for(federation), tmp_path / "clients")
    return algorithm, federation, engine


def lines_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_line_has_every_hop_and_all_bytes_of_its_round(world, tmp_path):
    algorithm, federation, engine = world
    list(Recorder(tmp_path / "run", algorithm, engine, federation.test, rounds=ROUNDS).run())
    lines = lines_of(tmp_path / "run")
    works = [[hop["work"] for hop in line["wire"]["hops"]] for line in lines]
    assert works == [["plan.grouping.traits"] * 12 + ["update"] * 12, ["update"] * 12]
    assert sum(line["wire"]["sent"] for line in lines) == engine.wire.sent  # the wire has counted them too
    for line in lines:
        for way in ("sent", "received"):
            assert line["wire"][way] == sum(client[way] for client in line["wire"]["clients"])
        assert [client["client"] for client in line["wire"]["clients"]] == list(range(12))
        assert all(hop["training"] > 0 <= hop["transfer"] and hop["waiting"] >= 0 for hop in line["wire"]["hops"])
    page = report.html([report.load(tmp_path / "run")])
    assert "Clients elsewhere" in page
    assert "Transfer (s)" in page


def test_a_simulation_has_nothing_of_it(world, tmp_path):
    algorithm, federation, engine = world
    simulated = Inline(federation, engine.task, 1)
    list(Recorder(tmp_path / "run", algorithm, simulated, federation.test, rounds=1).run())
    assert "wire" not in lines_of(tmp_path / "run")[0]
    assert "Clients elsewhere" not in report.html([report.load(tmp_path / "run")])


def test_what_was_sent_for_nothing_is_counted_and_waiting_is_told_apart():
    history = History()
    history.note(Hop(1, 0, 1, 7, "update", seconds=3.0, working=2.5, sent=100, received=90, waiting=4.0))
    history.note(Hop(1, 0, 2, 8, "update", seconds=1.0, working=0.5, sent=10, received=9))
    history.note_lost(8, 1000)
    found = history.taken()
    assert (found["sent"], found["received"]) == (1110, 99)
    assert found["clients"][1] == {"client": 8, "visits": 1, "sent": 1010, "received": 9}
    first = found["hops"][0]
    assert (first["waiting"], first["transfer"], first["training"]) == (4.0, 0.5, 2.5)
    assert history.taken() == {}
    assert (history.usual(7), history.visits[7], history.usual(9)) == (3.0, 1, None)


def test_a_line_with_wire_figures_is_read_back_and_a_damaged_one_is_refused(world):
    algorithm, _, engine = world
    *_, state = fr.train(algorithm, engine, rounds=1)
    log = replace(state.log, wire=engine.measured())
    assert decoded(encode(log), 1).wire == log.wire
    with pytest.raises(Damaged, match=r"wire\.hops should say client, chain, hop"):
        decoded(encode(replace(log, wire={**log.wire, "hops": [{"client": 1}]})), 1)


def text_of(renderable) -> str:
    console = Console(width=120, file=io.StringIO())
    console.print(renderable)
    return console.file.getvalue()


def test_the_live_table_says_who_is_there_at_work_or_lost_and_where_batons_are(world):
    algorithm, _, engine = world
    engine.wire.events = engine.wire.events[:11]  # one has not come yet
    engine.patience = Patience(beginning=0.5, grace=0.0)
    state = fr.advance(algorithm, engine, start(algorithm, engine))
    engine.heard([Gone(3, "its connection was lost"), Came(5)])
    planned = algorithm.plan(state, seeds.rng(1, "plan", 2))
    running = engine.run(algorithm.update, planned.chains, state.shared, 2)
    engine.wire.backwards = True
    seen = []
    answer = engine.wire.visitors[planned.chains[-1].clients[0]].answer

    def looked(request):
        seen.append(text_of(LiveTable(engine)))
        return answer(request)

    engine.wire.visitors[planned.chains[-1].clients[0]].answer = looked
    list(running)
    rows = {line.split("  ")[0].strip(): line for line in seen[0].splitlines()}
    assert "lost" in rows[engine.called(3)]
    assert "not yet" in rows[engine.called(11)]
    assert "never" in rows[engine.called(11)]
    at_work = engine.called(planned.chains[-1].clients[0])
    assert "at work" in rows[at_work]
    last = len(planned.chains) - 1
    assert f"chain {last} (0 of {len(planned.chains[-1].clients)}): {at_work} → " in seen[0]


def test_a_long_chain_is_shown_around_its_baton():
    clients = [f"c{number}" for number in range(40)]
    assert line_of({"chain": 2, "hop": 20, "clients": clients}).plain == (
        "chain 2 (20 of 40): … → " + " → ".join(clients[14:26]) + " → …"
    )
    assert line_of({"chain": 0, "hop": 3, "clients": clients[:3]}).plain == "chain 0 (3 of 3): c0 → c1 → c2"


def test_the_table_is_drawn_below_the_bar_in_a_terminal_and_not_elsewhere(world, tmp_path):
    algorithm, federation, engine = world
    for terminal in (True, False):
        path = tmp_path / f"{terminal}.txt"
        recorder = Recorder(tmp_path / f"run-{terminal}", algorithm, engine, federation.test, rounds=1)
        with path.open("w", encoding="utf-8") as file:
            follow(recorder, Console(file=file, force_terminal=terminal, width=120), LiveTable(engine))
        assert ("last seen" in path.read_text(encoding="utf-8")) is terminal


def test_in_a_terminal_lines_of_the_log_go_through_the_console_that_draws_the_table(monkeypatch):
    console = PlainConsole(force_terminal=True)
    monkeypatch.setattr(cli, "ERR", console)
    handler = cli.AboveTheTable()
    handler.setFormatter(cli.PlainLines("%(levelname)s %(message)s"))
    with console.capture() as said:
        handler.emit(logging.LogRecord("fedrelay", logging.INFO, "", 0, "north [red] is there", (), None))
    assert said.get() == "INFO north [red] is there\n"
