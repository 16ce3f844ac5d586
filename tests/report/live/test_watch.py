"""`fedrelay watch`, as its users see it."""

from __future__ import annotations

import io
import json
import threading
import time

import pytest
from invented_runs import line_of, run_folder
from rich.console import Console

from fedrelay import cli
from fedrelay.report.live import terminal
from fedrelay.runs.claim import alone_in


def test_a_run_is_told_in_full(tmp_path, capsys):
    drop = {"client": 7, "chain": 1, "hop": 0, "reason": "battery empty"}
    lines = [line_of(1, 0.25), line_of(2, 0.5, order=[[4, 2, 9], [7, 1, 3]], drops=[drop])]
    folder = run_folder(tmp_path / "run", lines, finished=False)
    with (folder / "rounds.jsonl").open("a") as file:
        file.write("broken\n")
    with alone_in(folder):
        assert cli.main(["watch", str(folder), "--once"]) == 0
    said = capsys.readouterr().out
    for expected in ("run (fedseq)", "running", "2/4", "about 1.0 s left", "▁█ 50.0 %, best 50.0 %", "2.0 kB"):
        assert expected in said
    for expected in ("4 → 2 → 9", "7 → 1 → 3", "client 7, 1 time(s), last in round 2: battery empty", "1 line(s)"):
        assert expected in said
    assert cli.main(["watch", str(folder), "--once"]) == 0
    assert "stopped: it can go on" in capsys.readouterr().out


def test_the_present_round_is_shown_hop_by_hop(tmp_path, capsys):
    folder = run_folder(tmp_path / "run", [line_of(1)], finished=False)
    with alone_in(folder):
        (folder / "checkpoint" / "underway").mkdir()
        told = {"hop": [2, 3], "clients": [4, 2, 9]}
        (folder / "checkpoint" / "underway" / "chain-4.json").write_text(json.dumps(told))
        assert cli.main(["watch", str(folder), "--once"]) == 0
    said = capsys.readouterr().out
    assert "round 2" in said
    assert "4 → [2] → 9" in said


def test_several_runs_are_a_table_and_a_failed_one_is_the_exit_code(tmp_path, capsys):
    run_folder(tmp_path / "runs" / "one", algorithm="fedavg")
    two = run_folder(tmp_path / "runs" / "two", finished=False)
    assert cli.main(["watch", str(tmp_path / "runs"), "--once"]) == 0
    said = capsys.readouterr().out
    assert all(word in said for word in ("one", "finished", "two", "stopped", "90.0 %", "4/4"))
    (two / "checkpoint").mkdir()
    (two / "checkpoint" / ".holder.json").write_text('{"failed": "the disk is full"}')
    assert cli.main(["watch", str(tmp_path / "runs"), "--json"]) == 1
    found = {run["name"]: run for run in json.loads(capsys.readouterr().out)}
    assert (found["two"]["words"], found["one"]["value"]) == ("failed: the disk is full", 0.9)


@pytest.mark.parametrize(
    ("name", "message"), [("nowhere", "is not a folder"), ("file", "is not a folder"), ("empty", "holds no run")]
)
def test_what_is_no_run_is_refused_in_words(tmp_path, capsys, name, message):
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    assert cli.main(["watch", str(tmp_path / name), "--once"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("in_terminal", [True, False])
def test_watching_goes_on_until_the_run_has_ended(tmp_path, in_terminal):
    """An empty folder is waited for, then its run, round by round."""
    (tmp_path / "runs").mkdir()
    console = Console(file=io.StringIO(), force_terminal=in_terminal, width=100)
    thread = threading.Thread(target=lambda: terminal.watch(tmp_path / "runs", console, every=0.02))
    thread.start()
    folder = tmp_path / "runs" / "run"
    with alone_in(folder):
        run_folder(tmp_path / "made", [line_of(1, 0.125)], finished=False)
        for name in ("config.toml", "rounds.jsonl"):
            (tmp_path / "made" / name).replace(folder / name)
        while "12.5 %" not in console.file.getvalue():
            time.sleep(0.02)
        assert thread.is_alive()
    thread.join(30)
    assert not thread.is_alive()
    assert "stopped: it can go on" in console.file.getvalue()
