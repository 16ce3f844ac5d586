"""A server and its clients, each in a process of its own, on this machine."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
import warnings
from pathlib import Path

import faults
import machines
import numpy as np
import pytest
from needs import posix
from patients import patients
from scenes import NAMES, joined, lines_of, served, simulated, summary_of, until_round, written

from fedrelay.cli.main import main

pytestmark = posix


@pytest.mark.parametrize(("method", "settings"), [("fedavg", ""), ("fedseq+scaffold", "groups = 2")])
def test_a_run_with_real_clients_ends_with_the_model_of_the_simulation_to_the_bit(method, settings, site):
    path = written(site.folder, method, settings)
    server = served(site, path, "--clients", ",".join(NAMES))
    port = server.port
    clients = [joined(site, port, name) for name in reversed(NAMES)]  # numbers come from names, not from who is first
    expected = simulated(path)
    assert server.wait() == 0, server.said
    assert [client.wait() for client in clients] == [0] * 4, [client.said for client in clients]
    found = summary_of(site.folder / "run")
    assert found["params_sha256"] == expected
    assert found["drops"] == 0
    hops = [json.loads(line) for line in (site.folder / "run" / "hops.jsonl").read_text().splitlines()]
    assert len(hops) == sum(line["visits"] for line in lines_of(site.folder / "run")) == 12
    assert all(hop["name"] == NAMES[hop["client"]] and hop["seconds"] > hop["working"] > 0 for hop in hops)
    assert min(hop["received"] for hop in hops) > 4 * 1210  # a model of 64 x 16 + 16 + 16 x 10 + 10 numbers
    kept = [path for path in site.folder.glob("home-*/*/*") if path.is_file()]
    assert bool(kept) is ("scaffold" in method)
    assert all(path.stat().st_mode & 0o077 == 0 for path in site.folder.glob("home-*/**/*"))


def test_with_keys_those_who_are_known_take_part_and_nobody_else_does(site):
    path = written(site.folder, "fedseq", "groups = 2")
    folder = site.folder / "keys"
    assert main(["keys", "make", str(folder), "--server", "127.0.0.1", "--clients", ",".join((*NAMES, "gone"))]) == 0
    assert main(["keys", "make", str(site.folder / "others"), "--server", "127.0.0.1", "--clients", "north"]) == 0
    assert main(["keys", "revoke", str(folder), "gone"]) == 0
    server = served(site, path, "--keys", folder)
    port = server.port

    def join(name: str, kit: Path | None, home: str = "") -> machines.Machine:
        words = ["join", "--server", f"127.0.0.1:{port}", "--home", site.folder / f"home-{home or name}"]
        words += ["--data", "experiment"]
        return site.start(*words, *(["--name", name] if kit is None else ["--keys", kit]), name=home or name)

    revoked = join("gone", folder / "clients" / "gone")
    stranger = join("north", site.folder / "others" / "clients" / "north", "stranger")
    plain = join("north", None, "plain")
    assert revoked.wait() == 2
    assert "the key of gone was revoked" in " ".join(revoked.said.split())
    stranger.until("not of the authority in our keys")
    plain.until("it asks for keys (--keys)")
    clients = [join(name, folder / "clients" / name) for name in NAMES]
    clients[0].until("takes part as east")
    twice = join("east", folder / "clients" / "east", "twice")
    assert server.wait() == 0, server.said
    assert [client.wait() for client in clients] == [0] * 4
    assert summary_of(site.folder / "run")["params_sha256"] == simulated(path)
    assert twice.ended() is None or "another process takes part as 'east'" in twice.said


def test_a_client_whose_key_is_revoked_is_cut_off_at_once(site):
    path, folder = written(site.folder, "fedavg"), site.folder / "keys"
    assert main(["keys", "make", str(folder), "--server", "localhost", "--clients", ",".join(NAMES)]) == 0
    long = ("--set", "rounds=100000", "--set", "evaluate.every=100000")
    server = served(site, path, "--keys", folder, "--grace", "0", *long)
    words = ("join", "--server", f"localhost:{server.port}", "--data", "experiment")
    kits = {name: ("--keys", folder / "clients" / name, "--home", site.folder / f"home-{name}") for name in NAMES}
    clients = {name: site.start(*words, *kit, name=name) for name, kit in kits.items()}
    until_round(server, site.folder / "run", 1)
    assert main(["keys", "revoke", str(folder), "south"]) == 0
    assert clients["south"].wait() == 2
    assert "the key of south was revoked" in " ".join(clients["south"].said.split())
    assert clients["east"].ended() is None
    server.until("south is cut off: the key of south was revoked")


def test_a_client_that_is_killed_is_named_in_the_record_and_used_again_when_it_is_back(site):
    path = written(site.folder, "fedseq", "groups = 2")
    folder = site.folder / "run"
    server = served(
        site,
        path,
        "--clients",
        ",".join(NAMES),
        "--grace",
        "0",
        "--status",
        "0",
        "--set",
        "rounds=400",
        "--set",
        "evaluate.every=400",
    )
    port = server.port
    clients = {name: joined(site, port, name) for name in NAMES}
    until_round(server, folder, 2)
    status = server.until("status on ").rpartition(" on ")[2]
    assert asked(f"{status.removesuffix('/status')}/health")["healthy"] is True
    assert [client["name"] for client in asked(status)["clients"] if client["there"]] == list(NAMES)
    clients["north"].kill()
    until_round(server, folder, len(lines_of(folder)) + 3)
    lost = [line for line in lines_of(folder) if line["drops"]]
    assert {drop["client"] for line in lost for drop in line["drops"]} == {1}
    assert lost[0]["drops"][0]["reason"] in ("its connection was lost", "is not there")
    again = joined(site, port, "north")
    again.until("takes part as north")
    for _ in machines.ticks("it is not used again"):
        if lines_of(folder)[-1]["clients"] == 4:
            break
    figures = dict(
        re.findall(r"^(fedrelay_\w+) (\S+)$", text_of(f"{status.removesuffix('/status')}/metrics"), re.MULTILINE)
    )
    assert figures["fedrelay_clients"] == "4"
    assert float(figures["fedrelay_lost_total"]) >= 1
    server.kill(signal.SIGTERM)
    assert server.wait() == 130
    assert "stopped; the run is safe" in server.said


def test_a_server_that_is_killed_goes_on_with_clients_that_come_back_by_themselves_to_the_same_bits(site):
    path = written(site.folder, "fedseq+scaffold", "groups = 2", rounds=40, checkpoint=7)
    folder, names = site.folder / "run", ("--clients", ",".join(NAMES))
    server = served(site, path, *names)
    port = server.port
    clients = [joined(site, port, name) for name in NAMES]
    until_round(server, folder, 10)
    server.kill()
    server.wait()
    expected = simulated(path)
    server = served(site, path, *names, "--resume", listen=f"127.0.0.1:{port}")
    assert server.wait() == 0, server.said
    assert [client.wait() for client in clients] == [0] * 4
    found = summary_of(folder)
    assert found["params_sha256"] == expected
    assert (found["drops"], found["rounds"]) == (0, 40)
    for home in site.folder.glob("home-*"):  # what nobody can ask for any more is gone
        assert len(list(home.glob("*/*"))) <= 3


def test_clients_bring_tables_of_their_own_which_nobody_else_sees(site):
    rng = np.random.default_rng(3)
    tables = site.folder / "tables"
    tables.mkdir()
    for place, name in enumerate(NAMES):
        (tables / f"{name}.csv").write_text(patients(40 + 10 * place, older=4.0 * place, rng=rng), encoding="utf-8")
    (site.folder / "test.csv").write_text(patients(60, older=5.0, rng=rng), encoding="utf-8")
    path = site.folder / "hospitals.toml"
    data = f'[data]\nname = "table"\npath = "{tables}"\nlabel = "outcome"\ntest = "{site.folder / "test.csv"}"\n'
    rest = (
        '[model]\nname = "mlp"\nhidden = [8]\n[algorithm]\nname = "fedseq"\ngroups = 2\n[local]\nlr = 0.1\nbatch = 8\n'
    )
    path.write_text(f"rounds = 4\nseed = 2\n{data}{rest}", encoding="utf-8")
    expected = simulated(path)
    policy = site.folder / "policy.toml"
    policy.write_text('methods = ["fedseq"]\nrounds = 10\n', encoding="utf-8")
    server = served(site, path, "--clients", ",".join(NAMES), "--own-data", "--test", site.folder / "test.csv")
    port = server.port
    clients = [joined(site, port, name, "--data", tables / f"{name}.csv", "--policy", policy) for name in NAMES]
    assert server.wait() == 0, server.said
    assert [client.wait() for client in clients] == [0] * 4, clients[0].said
    found = summary_of(site.folder / "run")
    assert found["params_sha256"] == expected
    assert found["final_accuracy"] is not None
    sent = [json.loads(line) for line in (site.folder / "home-east" / "sent.jsonl").read_text().splitlines()]
    assert sent[0]["told"]["columns"]["sex"]["kind"] == "category"
    assert sent[0]["told"]["rows"] == 40
    assert [(line["round"], line["model"] > 0) for line in sent[1:]] == [(1, True), (2, True), (3, True), (4, True)]


def test_clients_that_do_not_fit_or_refuse_say_why_and_end(site):
    path = written(site.folder, "fedavg")
    for name, width in (("east", 4), ("north", 4), ("south", 5)):
        rng = np.random.default_rng(width)
        np.savez(site.folder / f"{name}.npz", x=rng.normal(size=(20, width)), y=rng.integers(0, 3, 20))
    policy = site.folder / "policy.toml"
    policy.write_text('methods = ["fedprox"]\n', encoding="utf-8")
    long = ("--set", "rounds=100000", "--set", "evaluate.every=100000")
    server = served(site, path, "--clients", ",".join(NAMES), "--own-data", "--beginning", "0.5", *long)
    port = server.port
    good = [joined(site, port, name, "--data", site.folder / f"{name}.npz") for name in ("east", "north")]
    for client in good:
        client.until("takes part as")
    other = joined(site, port, "south", "--data", site.folder / "south.npz")
    refuses = joined(site, port, "west", "--data", site.folder / "east.npz", "--policy", policy)
    assert other.wait() == 2
    assert "does not let us in: the client's data makes a model of" in " ".join(other.said.split())
    assert refuses.wait() == 2
    assert "its policy does not allow the method fedavg (allowed: fedprox)" in " ".join(refuses.said.split())
    assert "west does not take part: its policy" in server.said
    server.kill(signal.SIGTERM)
    assert server.wait() == 130
    assert [client.ended() for client in good] == [None, None]  # they wait for the server to go on


def test_a_run_of_real_clients_is_gone_on_with_by_serve_only(tmp_path, capsys):
    path = written(tmp_path, "fedavg")
    assert main(["run", str(path), "--set", "engine.name=remote"]) == 2
    assert "`fedrelay serve` runs it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["serve", "FILE", "--listen", "0.0.0.0:0", "--clients", "a"], "can be reached by others: --keys DIR"),
        (["serve", "FILE", "--listen", "here"], "'here' is no address: expected HOST:PORT"),
        (["serve", "FILE", "--listen", "127.0.0.1:²"], "is no address: expected HOST:PORT"),
        (["serve", "FILE"], "the server must know its clients"),
        (["serve", "FILE", "--clients", "a,a"], "a is named twice"),
        (["serve", "FILE", "--clients", "a,b"], "[data] is split among 4 clients, and there are 2 names"),
        (["serve", "FILE", "--clients", "a,b,c,d", "--set", "algorithm.name=centralized"], "has no clients"),
        (["serve", "FILE", "--clients", "a,b,c,d", "--listen", "192.0.2.1:1", "--plain-text"], "cannot listen on"),
        (["serve", "FILE", "--keys", "nowhere"], "is missing: expected a folder that `fedrelay keys make`"),
        (["serve", "FILE", "--clients", "a", "--grace", "-1"], "grace must be at least 0"),
        (["serve", "FILE", "--clients", "a", "--wait", "0"], "wait must be above 0"),
        (["join", "--data", "experiment", "--server", "127.0.0.1:1"], "who is this client?"),
        (["join", "--data", "experiment", "--server", "https://relay.example:8470", "--name", "a"], "is no address"),
        (
            ["join", "--data", "experiment", "--server", "relay.example:1", "--name", "a"],
            "is another machine: --keys DIR is needed",
        ),
        (
            ["join", "--data", "experiment", "--server", "127.0.0.1:1", "--keys", "nowhere"],
            "is missing: expected a folder",
        ),
        (
            ["join", "--data", "experiment", "--server", "127.0.0.1:1", "--name", "a", "--policy", "nowhere"],
            "there is no file",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anybody_is_waited_for(words, says, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, "fedavg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        ended = faults.once(lambda: main([str(path) if word == "FILE" else word for word in words]))
    assert ended.code == 2, ended.said
    assert says in " ".join(ended.said.split())


def asked(address: str) -> dict:
    return json.loads(text_of(address))


def text_of(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return answer.read().decode()


def test_a_dry_run_says_what_it_has_found_and_leaves_nothing(tmp_path):
    path = written(tmp_path, "fedavg")
    words = [
        "serve",
        str(path),
        "--listen",
        "127.0.0.1:0",
        "--clients",
        ",".join(NAMES),
        "--out",
        str(tmp_path / "run"),
    ]
    ended = faults.once(lambda: main([*words, "--dry-run"]))
    assert ended.code == 0, ended.said
    assert "configuration: fedavg, 1,210 numbers a model" in ended.said
    assert "keys: none, so everything is sent in plain text" in ended.said
    assert "is free" in ended.said
    assert not (tmp_path / "run").exists()


OWN = ["--own-data", "--set", "data={ name = 'table', label = 'outcome' }"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ([], "configuration: fedavg, as long as the clients' data makes it, into"),
        (["--set", "model={ name = 'small_cnn' }"], "MB are left, a checkpoint needs at most"),
        (["--set", "algorithm.name=fedavgg"], "did you mean 'fedavg'"),
        (["--set", "local.lr=-1"], "lr must be"),
        (["--set", "model.name=nothing"], "nothing"),
        (["--set", "data.target=anything"], "the target of a table must be"),
        (["--test", "nowhere.csv"], "nowhere.csv is not there"),
        (["FULL"], "MB left, a checkpoint may need"),
    ],
)
def test_a_dry_run_checks_configuration_and_disk_where_clients_bring_their_data_too(
    more, says, tmp_path, capsys, monkeypatch
):
    if "FULL" in more:
        full = type("Full", (), {"free": 1 << 20})
        monkeypatch.setattr("shutil.disk_usage", lambda path: full)
    words = [
        "serve",
        str(written(tmp_path, "fedavg")),
        "--listen",
        "127.0.0.1:0",
        "--clients",
        "a,b",
        "--dry-run",
        *OWN,
    ]
    words += ["--out", str(tmp_path / "run"), *(word for word in more if word != "FULL")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        ended = faults.once(lambda: main(words))
    assert ended.code == (0 if "configuration" in says or "needs at most" in says else 2), ended.said
    assert says in " ".join(ended.said.split())
    assert not (tmp_path / "run").exists()


def test_a_port_in_use_for_the_status_is_refused_before_anybody_is_waited_for(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = ["--clients", "a,b", "--own-data", "--status", str(taken.getsockname()[1])]
        command = [sys.executable, "-m", "fedrelay", "serve", str(written(tmp_path, "fedavg")), *words]
        # A program of its own: whoever has begun gRPC must not be forked, as the next test does.
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2
    assert "Address already in use): name another port" in " ".join(ended.stderr.split())


def test_a_port_in_use_is_refused(site):
    path = written(site.folder, "fedavg")
    first = served(site, path, "--clients", ",".join(NAMES))
    second = site.start(
        "serve",
        path,
        "--listen",
        f"127.0.0.1:{first.port}",
        "--clients",
        ",".join(NAMES),
        "--out",
        site.folder / "other",
    )
    assert second.wait() == 2
    assert "the port is in use" in " ".join(second.said.split())
