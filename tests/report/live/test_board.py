"""The board in a real browser, with a real run: curves grow, and stop and resume lead to the same bits."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from invented_runs import line_of, run_folder
from needs import posix

from fedrelay import config
from fedrelay.report.live import board
from fedrelay.report.live.opening import leading_to
from fedrelay.report.live.server import Server, serve
from fedrelay.runs.claim import alone_in

FILE = """
rounds = 100
checkpoint = 40
[data]
name = "digits"
clients = 10
partition = { name = "dirichlet", alpha = 0.0 }
[model]
name = "mlp"
hidden = [16]
[local]
batch = 4
lr = 0.1
[algorithm]
name = "fedseq"
max_clients = 5
fraction = 1.0
[engine]
name = "inline"
"""
AXE = Path(__file__).resolve().parents[2] / "axe" / "axe.min.js"
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def serving(tmp_path, monkeypatch):
    monkeypatch.setattr(board, "AGAIN", 0.1)  # a run is soon found
    (tmp_path / "runs").mkdir()
    with serve(tmp_path / "runs", port=0) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def quiet(page, serving: Server) -> bool:
    """Nothing in the console, and nothing asked of anybody else."""
    ours = f"http://127.0.0.1:{serving.port}/"
    assert page.complaints() == []
    assert [url for url in page.requests() if not url.startswith(ours)] == []
    return True


def label(name: str) -> str:
    return f"document.getElementById('{name}').getAttribute('aria-label')"


def cell(run: str, place: int) -> str:
    """The text in a place of the row of a run."""
    found = f"[...document.querySelectorAll('#runs tbody tr')].find((row) => row.textContent.includes('{run}'))"
    return f"(({found}) || {{cells: []}}).cells[{place}]?.textContent"


def coloured(name: str) -> str:
    """How many pixels of a chart have a strong colour: curves have, axes have not."""
    return f"""(() => {{
      const canvas = document.getElementById('{name}'), copy = new OffscreenCanvas(canvas.width, canvas.height);
      const pen = copy.getContext('2d', {{ willReadFrequently: true }});
      pen.drawImage(canvas, 0, 0);
      const {{ data }} = pen.getImageData(0, 0, canvas.width, canvas.height);
      let count = 0;
      for (let i = 0; i < data.length; i += 4)
        count += data[i + 3] > 200 && Math.abs(data[i] - data[i + 2]) > 60;
      return count;
    }})()"""


def chosen(page, name: str, value: object, event: str) -> None:
    """At once: in between the page might set it as it was."""
    page.run(f"""{{ const one = document.getElementById('{name}');
        one.value = '{value}'; one.dispatchEvent(new Event('{event}')); }}""")


@posix
def test_a_run_is_seen_growing_stopped_and_resumed_to_the_same_bits(tmp_path, browser, serving):
    run_folder(tmp_path / "runs" / "old")
    (tmp_path / "run.toml").write_text(FILE)
    folder = tmp_path / "runs" / "new"
    command = [sys.executable, "-m", "fedrelay.cli", "run", str(tmp_path / "run.toml"), "--out", str(folder)]
    started = subprocess.Popen(command, stderr=subprocess.PIPE)
    with browser.page(serving.address) as page, started as process, ExitStack() as last:
        last.callback(process.kill)  # one that is held would be waited for
        page.wait("document.documentElement.dataset.ready")
        assert page.run(cell("old", 2)) == "finished"
        # it appears by itself, and its curve grows
        page.wait(f"{cell('new', 2)} === 'running' && parseInt({cell('new', 3)}) >= 2")
        process.send_signal(signal.SIGSTOP)  # or it might end before the browser has its turn
        page.run("[...document.querySelectorAll('.name')].find((b) => b.textContent.includes('new')).click()")
        # it is of other data than the old one, which is left out by unticking it
        page.wait("document.getElementById('apart').textContent.includes('1 ticked run is of other data')")
        assert "Drawn: digits, shards." in page.run("document.getElementById('apart').textContent")
        assert page.run(label("value")) == "Accuracy: old 90 %"
        page.run("document.querySelectorAll('#runs tbody input')[0].click()")
        assert page.run("document.getElementById('apart').hidden")
        first = page.run(f"parseInt({cell('new', 3)})")
        process.send_signal(signal.SIGCONT)
        page.wait(f"parseInt({cell('new', 3)}) > {first} && {label('value')}.includes('new')")
        # stop: as Ctrl-C would
        process.send_signal(signal.SIGSTOP)
        page.wait("!document.getElementById('stop').hidden")
        page.run("document.getElementById('stop').click()")
        page.wait("document.getElementById('said').textContent")  # it was asked to
        process.send_signal(signal.SIGCONT)
        page.wait(f"{cell('new', 2)} === 'stopped'")
        assert b"stopped; the run is safe" in process.communicate(timeout=300)[1]
        assert process.returncode == 130
        done = len((folder / "rounds.jsonl").read_text().splitlines())
        assert first <= done < 100
        # resume, to the end
        page.wait("!document.getElementById('resume').hidden")
        page.run("document.getElementById('resume').click()")
        page.wait(f"{cell('new', 2)} === 'finished' && {cell('new', 3)} === '100/100'")
        page.wait("document.getElementById('log').textContent.includes('ended with code 0')")
        assert quiet(page, serving)
    whole = config.build(config.read(tmp_path / "run.toml")).record(tmp_path / "whole")
    list(whole.run())
    assert json.loads((folder / "summary.json").read_text())["params_sha256"] == whole.summary().params_sha256


def test_runs_are_compared_by_ticking_and_batons_move(tmp_path, browser, serving):
    orders = [[[4, 2, 9], [7, 1]], [[1, 2], [3]], [[5, 6, 8], [0]], [[4, 2, 9], [7, 1, 3]]]
    drop = {"client": 7, "chain": 1, "hop": 0, "reason": EVIL}
    lines = [line_of(n, n / 8, order=order, drops=[drop] if n == 4 else []) for n, order in enumerate(orders, 1)]
    run_folder(tmp_path / "runs" / EVIL, lines)
    run_folder(tmp_path / "runs" / "other")
    with browser.page(serving.address, dark=True) as page:
        page.wait("document.documentElement.dataset.ready")
        assert page.run("document.title") == "fedrelay board"
        assert page.run(label("value")) == f"Accuracy: {EVIL} 50 %, other 90 %"
        assert not page.run("document.querySelector('td img, dd img, #dropped img')")
        both = page.run(coloured("value"))
        # by keyboard: the box of the second run
        page.run("document.querySelectorAll('#runs tbody input')[1].focus()")
        page.key(" ", 32, " ")
        assert page.run(label("value")) == f"Accuracy: {EVIL} 50 %"
        assert 0 < page.run(coloured("value")) < both
        # the read-out, by pointer and by keys
        x, y, wide, high = page.run(
            "Object.values(document.getElementById('value').getBoundingClientRect().toJSON()).slice(0, 4)"
        )
        page.hover(x + wide - 30, y + high / 2)
        page.wait("document.querySelector('.tip:not([hidden])')?.textContent.includes('50.0 %')")
        # other axis
        chosen(page, "along", "bytes", "change")
        assert "kB" in page.run("document.querySelector('.tip:not([hidden])').textContent")
        # the last round: two chains of three, client 7 lost, and batons on their way
        assert page.run("document.querySelectorAll('#picture .client').length") == 6
        assert page.run("document.querySelector('#picture .lost title').textContent") == "client 7, hop 1 of 3: lost"
        moved = "[...document.querySelectorAll('.baton')].map((baton) => baton.style.transform).join()"
        before = page.run(moved)
        page.wait(f"{moved} !== {json.dumps(before)}")
        page.run("document.getElementById('play').click()")
        assert page.run("document.getElementById('play').textContent") == "Play"
        # another round
        chosen(page, "round", 2, "input")
        page.wait("document.querySelectorAll('#picture .client').length === 3")
        assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
        assert quiet(page, serving)
        # for everybody: axe-core's rules of WCAG 2 and good practice
        page.run(AXE.read_text(encoding="utf-8"))
        assert page.run("axe.run({iframes: false}).then(({violations}) => violations.map((one) => one.id))") == []


def test_the_round_under_way_is_shown_where_it_is_on_a_phone_too(tmp_path, browser, serving):
    folder = run_folder(tmp_path / "runs" / "run", [line_of(1)], finished=False)
    told = folder / "checkpoint" / "underway" / "chain-4.json"
    with alone_in(folder):
        told.parent.mkdir()
        told.write_text(json.dumps({"hop": [2, 3], "clients": [4, 2, 9]}))
        with browser.page(serving.address, width=390, height=800) as page:
            page.wait("document.documentElement.dataset.ready")
            now = "[...document.querySelectorAll('#picture .now title')].map((one) => one.textContent).join()"
            assert page.run(now) == "client 2, hop 2 of 3"
            assert "Round 2 is under way" in page.run("document.getElementById('picture-said').textContent")
            told.write_text(json.dumps({"hop": [3, 3], "clients": [4, 2, 9]}))
            page.wait(f"{now} === 'client 9, hop 3 of 3'")
            assert page.run("document.documentElement.scrollWidth <= innerWidth")
            assert quiet(page, serving)


def test_a_board_without_runs_says_how_to_get_one(browser, serving):
    with leading_to(serving.address) as file, browser.page(file) as page:  # as --open does
        page.wait("document.documentElement.dataset.ready")
        assert page.run("document.getElementById('empty').checkVisibility()")
        assert page.complaints() == []
        assert page.run("location.href") == serving.address
