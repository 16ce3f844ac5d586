"""The server of the board: only this machine, only this page, only this folder."""

from __future__ import annotations

import http.client
import json
import socket
import stat
import sys
import threading
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
from invented_runs import line_of, run_folder

from fedrelay import cli
from fedrelay.errors import BadInput
from fedrelay.report.live import board
from fedrelay.report.live.server import TOKEN, Server, serve


@pytest.fixture
def serving(tmp_path):
    run_folder(tmp_path / "runs" / "a")
    run_folder(tmp_path / "runs" / "b", [line_of(1, order=[[3, 1], [2]])], finished=False)
    run_folder(tmp_path / "outside")
    with serve(tmp_path / "runs", port=0) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def asked(serving, path, body=None, **headers):
    method, more = "GET" if body is None else "POST", {key.replace("_", "-"): value for key, value in headers.items()}
    with closing(http.client.HTTPConnection("127.0.0.1", serving.port, timeout=60)) as line:
        line.request(method, path, body, {TOKEN: serving.token} | more)
        with line.getresponse() as answer:
            return answer.status, answer.read().decode(), answer.headers


def test_it_listens_on_the_loopback_address_only(serving):
    assert serving.server_address[0] == "127.0.0.1"


def test_another_host_another_page_and_another_token_are_refused(serving):
    ours = f"127.0.0.1:{serving.port}"
    assert asked(serving, "/api/runs")[0] == 200
    assert asked(serving, "/api/runs", Host=f"localhost:{serving.port}")[0] == 200
    for host in ("evil.example", f"evil.example:{serving.port}", "127.0.0.1", f"{ours}.evil.example", ""):
        assert asked(serving, "/api/runs", Host=host)[0] == 403
    for path in ("/", "/api/runs", "/api/stop", "/api/resume"):
        body = None if path in ("/", "/api/runs") else '{"run": 0}'
        assert asked(serving, path, body, **{TOKEN: "guessed"})[0] == 403
        assert asked(serving, path, body, **{TOKEN: ""})[0] == 403
    assert asked(serving, "/api/stop", '{"run": 0}', Origin="http://evil.example")[0] == 403
    assert asked(serving, "/api/stop", '{"run": 0}', Origin="null")[0] == 403
    assert asked(serving, "/api/stop", '{"run": 0}', Sec_Fetch_Site="cross-site")[0] == 403
    assert asked(serving, "/api/stop", '{"run": 0}', Origin=f"http://{ours}")[0] == 400  # there is nothing to stop
    assert asked(serving, f"/?token={serving.token}", **{TOKEN: ""})[0] == 200
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert asked(serving, f"/?token={serving.token}", **link)[0] == 200
    assert asked(serving, "/?token=guessed", **link)[0] == 403
    assert asked(serving, "/api/runs", **link)[0] == 403
    assert asked(serving, "/api/stop", '{"run": 0}', **link)[0] == 403
    assert asked(serving, f"/?token={serving.token}", **link | {"Sec_Fetch_Dest": "iframe"})[0] == 403


def test_a_browser_is_not_given_the_token_where_others_see_it(tmp_path, monkeypatch, capsys):
    seen = []

    def opened(url: str) -> None:
        path = Path(url2pathname(urlsplit(url).path))
        seen.append((url, path, stat.S_IMODE(path.stat().st_mode), path.read_text()))

    def interrupted(self) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("webbrowser.open", opened)
    monkeypatch.setattr(Server, "serve_forever", interrupted)
    assert cli.main(["board", str(tmp_path), "--port", "0", "--open"]) == 0
    ((url, path, mode, text),) = seen
    address = next(word for word in capsys.readouterr().out.split() if "token=" in word)
    assert address.partition("token=")[2] not in url
    assert f'url={address}"' in text
    assert mode == 0o600 or sys.platform == "win32"
    assert not path.exists()
    assert not path.parent.exists()


def test_the_page_may_load_nothing_from_elsewhere(serving):
    _, page, headers = asked(serving, f"/?token={serving.token}")
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert headers["Cache-Control"] == "no-store"
    assert "//" not in page.replace("<!doctype html>", "")
    for name in ("board.css", "board.js", "charts.js", "relay.js"):
        assert asked(serving, f"/{name}")[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/../outside/config.toml", None, 404),
        ("/page/board.html", None, 404),
        ("/api/round?run=7&round=1", None, 400),
        ("/api/round?run=1&round=9", None, 400),
        ("/api/round?run=../outside&round=1", None, 400),
        ("/api/runs?have=1.2", None, 400),
        ("/api/runs?have=a.b.c", None, 400),
        ("/api/stop", '{"run": "/etc"}', 400),
        ("/api/stop", "[", 400),
        ("/api/stop", "x" * 20_000, 413),
        ("/api/delete", '{"run": 0}', 404),
        ("/api/resume", '{"run": 0}', 400),
        ("/api/stop", '{"run": 1}', 400),
    ],
)
def test_requests_that_make_no_sense_are_refused_in_words(serving, path, body, code):
    asked(serving, "/api/runs")
    found, text, _ = asked(serving, path, body)
    assert (found, text.count("\n")) == (code, 1)
    assert "Traceback" not in text


def test_only_points_that_the_page_does_not_have_are_sent(serving, tmp_path):
    _, text, _ = asked(serving, "/api/runs")
    runs = {run["name"]: run for run in json.loads(text)["runs"]}
    assert runs.keys() == {"a", "b"}  # nothing from outside
    assert [point[:2] for point in runs["a"]["points"]] == [[1, 0.2], [2, None], [3, 0.6], [4, 0.9]]
    assert [point[4] for point in runs["a"]["points"]] == [1000, 2000, 3000, 4000]  # bytes
    with (tmp_path / "runs" / "b" / "rounds.jsonl").open("a") as file:
        file.write(json.dumps(line_of(2, 0.75)) + "\n")
    have = ",".join(f"{run['id']}.{run['part']}.{len(run['points'])}" for run in runs.values())
    again = {run["name"]: run for run in json.loads(asked(serving, f"/api/runs?have={have}")[1])["runs"]}
    assert again["a"]["points"] == []
    assert [point[:2] for point in again["b"]["points"]] == [[2, 0.75]]
    assert (again["b"]["first"], again["b"]["rounds"], again["b"]["value"]) == (1, 2, 0.75)


def test_runs_of_other_data_have_another_federation(tmp_path):
    for name, data in (("a", "digits"), ("b", "mnist"), ("c", "digits")):
        run_folder(tmp_path / name, data=data)
    found = board.Board(tmp_path).runs({})["runs"]
    assert [(run["federation"], run["data"]) for run in found] == [
        (0, "digits, shards"),
        (1, "mnist, shards"),
        (0, "digits, shards"),
    ]


def test_a_round_tells_who_trained_after_whom(serving):
    runs = json.loads(asked(serving, "/api/runs")[1])["runs"]
    found = json.loads(asked(serving, f"/api/round?run={runs[1]['id']}&round=1")[1])
    assert (found["order"], found["lost"], found["serverless"]) == ([[3, 1], [2]], [], False)


def test_many_runs_come_in_several_answers_if_reading_them_takes_long(tmp_path, monkeypatch):
    for number in range(5):
        run_folder(tmp_path / f"run{number}")
    monkeypatch.setattr(board, "PATIENCE", 0.0)
    runs = board.Board(tmp_path)
    told = runs.runs({})
    assert (len(told["runs"]), told["pending"]) == (1, 4)
    monkeypatch.setattr(board, "PATIENCE", 60.0)
    told = runs.runs({})
    assert (len(told["runs"]), told["pending"]) == (5, 0)


def test_a_port_in_use_is_told_with_one_that_is_free(tmp_path, capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert cli.main(["board", str(tmp_path), "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"port {port} is in use: --port " in said
    assert "--port 0 takes any" in said


def test_what_is_no_folder_or_no_port_is_refused(tmp_path, capsys):
    with pytest.raises(BadInput, match="is not a folder"):
        serve(tmp_path / "nowhere", port=0)
    assert cli.main(["board", str(tmp_path), "--port", "70000"]) == 2
    assert "at most 65535" in capsys.readouterr().err


def test_a_run_that_cannot_be_resumed_from_here_says_what_does(tmp_path):
    run_folder(tmp_path / "served", finished=False, extra='[engine]\nname = "remote"\n')
    run_folder(tmp_path / "done")
    runs = board.Board(tmp_path)
    numbers = {run["name"]: run["id"] for run in runs.runs({})["runs"]}
    with pytest.raises(BadInput, match=r"`fedrelay serve … --resume` goes on with it"):
        runs.resume(numbers["served"])
    with pytest.raises(BadInput, match="has done all its rounds"):
        runs.resume(numbers["done"])
    run_folder(tmp_path / "linked", finished=False)
    (tmp_path / "linked" / "resumed.log").symlink_to(tmp_path / "precious")
    runs = board.Board(tmp_path)
    numbers = {run["name"]: run["id"] for run in runs.runs({})["runs"]}
    with pytest.raises(BadInput, match="the run was not begun"):
        runs.resume(numbers["linked"])
    assert not (tmp_path / "precious").exists()
