"""What goes wrong between machines: each has a clear message on the side that can act, and none spoils a run."""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import faults
import numpy as np
import pytest
from needs import needed, posix
from patients import patients
from proxy import CuttingProxy
from scenes import NAMES, clock, free_port, joined, lines_of, served, simulated, summary_of, until_round, written

from fedrelay.cli.main import main
from fedrelay.remote import grpc_client
from fedrelay.remote.grpc_client import words as in_words

pytestmark = posix
keys = needed("fedrelay.remote.keys")
LONG = ("--set", "rounds=100000", "--set", "evaluate.every=100000")
EVERYBODY = ("--clients", ",".join(NAMES))


def words(text: str) -> str:
    return " ".join(text.split())


def trusting() -> None:
    """A process that has looked at its certificate before it expired, and looks again."""
    check = keys.check_valid

    def first(path: Path, remedy: str):
        keys.check_valid = check
        return keys._certificate(path)

    keys.check_valid = first


def test_a_wrong_address_is_told_in_words_and_tried_again(site):
    nobody = joined(site, free_port(), "east")
    nowhere = site.start(
        *("join", "--server", "no-such-machine.invalid:1", "--name", "a", "--data", "experiment", "--plain-text"),
        *("--home", site.folder / "home-nowhere"),
    )
    web = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    other = joined(site, web.server_address[1], "west")
    nobody.until("nobody listens at this address")
    nowhere.until("there is no machine of this name: check --server")
    other.until("something else than fedrelay answers there")
    assert [one.ended() for one in (nobody, nowhere, other)] == [None] * 3
    web.shutdown()
    web.server_close()


@pytest.mark.parametrize(
    ("said", "told"),  # by gRPC, where a firewall drops packets, without a network, and behind a proxy that refuses
    [
        (
            "Failed to connect to remote host: getsockopt(SO_ERROR): Connection timed out",
            "a firewall drops what is sent",
        ),
        ("connect failed: addr: ipv4:192.0.2.1:8470 error: Network is unreachable", "there is no way to this address"),
        ("UNKNOWN: ipv4:127.0.0.1:45677: HTTP proxy returned response code 403", "name the server in no_proxy"),
        ("something that nobody has seen yet", "the server cannot be reached (something that nobody has seen yet)"),
    ],
)
def test_networks_that_let_nothing_through_are_told_in_words(said, told):
    assert told in in_words(ConnectionError(said))


def test_certificates_that_expire_while_processes_go_on_are_told_at_the_next_joining(site, monkeypatch):
    path, folder = written(site.folder, "fedavg"), site.folder / "keys"
    assert main(["keys", "make", str(folder), "--server", "127.0.0.1", "--clients", ",".join(NAMES)]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(keys, "datetime", clock(days=-10))
        keys.renew(folder, "north", days=5)
    server = served(site, path, "--keys", folder)
    kit = ("--keys", folder / "clients" / "north", "--home", site.folder / "home-north", "--data", "experiment")
    old = site.start("join", "--server", f"127.0.0.1:{server.port}", *kit, before=trusting)
    fresh = site.start("join", "--server", f"127.0.0.1:{server.port}", *kit[2:], *kit[:2], name="fresh")
    assert fresh.wait() == 2
    assert "client.pem has expired on" in words(fresh.said)
    assert old.wait() == 2
    assert "client.pem has expired on" in words(old.said)
    server.kill()
    server.wait()
    with monkeypatch.context() as patch:
        patch.setattr(keys, "datetime", clock(days=-10))
        keys.renew_server(folder, days=5)
    refused = served(site, path, "--keys", folder)
    assert refused.wait() == 2
    assert "server.pem has expired on" in words(refused.said)
    server = served(site, path, "--keys", folder, before=trusting)
    good = ("--keys", folder / "clients" / "east", "--home", site.folder / "home-east", "--data", "experiment")
    client = site.start("join", "--server", f"127.0.0.1:{server.port}", *good, name="east")
    client.until("the server's certificate has expired, or this machine's clock is wrong")


def test_two_processes_with_one_name_the_second_waits_and_says_why(site):
    path = written(site.folder, "fedavg")
    server = served(site, path, *EVERYBODY, *LONG)
    clients = [joined(site, server.port, name) for name in NAMES]
    until_round(server, site.folder / "run", 1)
    twice = site.start(
        *("join", "--server", f"127.0.0.1:{server.port}", "--name", "east", "--data", "experiment"),
        *("--home", site.folder / "elsewhere"),
    )
    twice.until("another process takes part as 'east' already: every client needs a name and a key of its own")
    assert "a client was refused: another process takes part as 'east'" in words(server.said)
    same = joined(site, server.port, "east")
    assert same.wait() == 2
    assert "is in use by another client: give every client a --home" in words(same.said)
    assert [client.ended() for client in clients] == [None] * 4


def test_another_version_of_fedrelay_is_refused_with_both_versions(site):
    from fedrelay.remote import grpc_client

    def older() -> None:
        there = grpc_client.environment()
        grpc_client.environment = lambda: {**there, "fedrelay": "0.0.1"}

    def newer() -> None:
        there = grpc_client.environment()
        grpc_client.environment = lambda: {**there, "protocol": there["protocol"] + 1}

    server = served(site, written(site.folder, "fedavg"), *EVERYBODY)
    one = joined(site, server.port, "east", before=older)
    two = joined(site, server.port, "west", before=newer)
    assert (one.wait(), two.wait()) == (2, 2)
    assert "this client 0.0.1: install the same version of fedrelay on both" in words(one.said)
    assert "the server has protocol" in words(two.said)
    server.until("a client was refused: the server has fedrelay")
    assert server.ended() is None


def test_a_table_with_other_labels_or_columns_is_refused_and_the_others_go_on(site):
    path, rng = site.folder / "hospitals.toml", np.random.default_rng(5)
    text = 'rounds = 100000\n[data]\nname = "table"\nlabel = "outcome"\n[model]\nname = "logistic"\n'
    path.write_text(text + '[evaluate]\nevery = 100000\n[algorithm]\nname = "fedavg"\n', encoding="utf-8")
    tables = {name: patients(30, older=0.0, rng=rng) for name in NAMES}
    tables["south"] = tables["south"].replace("well", "cured")
    tables["west"] = tables["west"].replace("dose", "weight")
    for name, table in tables.items():
        (site.folder / f"{name}.csv").write_text(table, encoding="utf-8")
    server = served(site, path, *EVERYBODY, "--own-data", "--beginning", "0.5")
    clients = {name: joined(site, server.port, name, "--data", site.folder / f"{name}.csv") for name in NAMES[:2]}
    until_round(server, site.folder / "run", 1)
    clients |= {name: joined(site, server.port, name, "--data", site.folder / f"{name}.csv") for name in NAMES[2:]}
    assert clients["south"].wait() == 2
    assert "cured" in words(clients["south"].said)
    assert clients["west"].wait() == 2
    assert "dose" in words(clients["west"].said)
    server.until("west does not take part: it cannot use its data")
    assert "cured" not in server.said  # what a client's own log says may quote its rows and name its files
    assert str(site.folder / "west.csv") not in server.said
    assert [server.ended(), clients["east"].ended(), clients["north"].ended()] == [None] * 3


def test_a_disk_that_is_full_at_a_checkpoint_ends_the_server_and_the_run_goes_on_when_there_is_room(site):
    path = written(site.folder, "fedseq+scaffold", "groups = 2", rounds=12, checkpoint=4)
    expected, full = simulated(path), site.folder / "full"
    server = served(site, path, *EVERYBODY, before=partial(full_disk, full, after=(site.folder / "run", 5)))
    port = server.port
    clients = [joined(site, port, name) for name in NAMES]
    assert server.wait() == 1, server.said
    assert 5 <= len(lines_of(site.folder / "run")) < 12
    assert "No space left on device" in words(server.said)
    assert "Traceback" not in server.said
    full.unlink()
    server = served(site, path, *EVERYBODY, "--resume", listen=f"127.0.0.1:{port}")
    assert server.wait() == 0, server.said
    assert [client.wait() for client in clients] == [0] * 4
    assert (summary_of(site.folder / "run")["params_sha256"], summary_of(site.folder / "run")["drops"]) == (expected, 0)


def full_disk(flag: Path, *, after: tuple[Path, int] | None = None) -> None:
    """Nothing can be written as long as there is a flag; it is set `after` so many rounds of the run in a folder, by
    the process itself, so that no machine is too fast or too slow for it."""
    looking = False

    def strike(name: str, half: Callable[[], object]) -> None:
        nonlocal after, looking
        if after is not None and name in faults.ROOM and not looking:
            looking = True  # to look and to set it are calls of the system as well
            if len(lines_of(after[0])) >= after[1]:
                flag.touch()
                after = None
            looking = False
        if name in faults.ROOM and not looking and flag.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    faults.watch(strike)


def test_a_client_that_cannot_note_what_it_sends_sends_nothing_and_says_so(site):
    path, full = written(site.folder, "fedavg"), site.folder / "full"
    server = served(site, path, *EVERYBODY, *LONG)
    clients = {name: joined(site, server.port, name) for name in NAMES[1:]}
    clients["east"] = joined(site, server.port, "east", before=partial(full_disk, full))
    until_round(server, site.folder / "run", 1)
    full.touch()
    server.until("cannot note what it sends (No space left on device)")
    clients["east"].until("cannot note what it sends (No space left on device)")
    full.unlink()
    assert clients["east"].ended() is None


def test_a_message_longer_than_the_limit_is_never_taken_and_nothing_is_left_for_others_to_read(site):
    path = written(site.folder, "fedavg")
    server = served(site, path, *EVERYBODY, "--largest", "0.001", "--grace", "0")
    clients = [joined(site, server.port, name) for name in NAMES]
    assert server.wait() == 1, server.said
    # A model of 64 x 16 + 16 + 16 x 10 + 10 numbers of 4 bytes, and what is said about it.
    found = re.findall(r"sent ([\d,]+) bytes at once, and ([\d,]+) are the most", words(server.said))
    assert {limit for _, limit in found} == {"1,048"}
    assert all(4 * 1210 < int(size.replace(",", "")) < 4 * 1210 + 1024 for size, _ in found)
    assert "Traceback" not in server.said
    assert [client.ended() for client in clients] == [
        None
    ] * 4  # whoever runs the server may raise the limit, and resume
    for place in (site.folder / "run", *site.folder.glob("home-*")):
        assert [path for path in (place, *place.rglob("*")) if path.stat().st_mode & 0o077] == []


def test_a_proxy_that_cuts_long_connections_changes_no_bit(site):
    path = written(site.folder, "fedseq+scaffold", "groups = 2", rounds=60, checkpoint=20)
    expected = simulated(path)
    server = served(site, path, *EVERYBODY, "--grace", "60")
    proxy = CuttingProxy(server.port, most=300_000)
    clients = [joined(site, proxy.port, name) for name in NAMES]
    assert server.wait() == 0, server.said
    found = summary_of(site.folder / "run")
    assert (found["params_sha256"], found["drops"]) == (expected, 0)
    assert proxy.cuts > len(NAMES)
    assert all("connected again" in client.said for client in clients)
    proxy.close()


def test_whoever_was_let_in_is_back_soon_and_whoever_was_not_waits_longer_and_longer(monkeypatch):
    """Without a clock: the pauses that a client makes between its calls, of which all are cut off."""
    pauses = list[float]()

    class Cut(grpc_client.Connection):
        def _call(self) -> str | None:
            self._let_in = len(pauses) >= 8
            return "cut off" if len(pauses) < 12 else None

    class Counting:
        def is_set(self) -> bool:
            return False

        def wait(self, seconds: float) -> None:
            pauses.append(seconds)

    monkeypatch.setattr(grpc_client.random, "uniform", lambda least, most: most)
    monkeypatch.setattr(grpc_client.threading, "Event", Counting)
    monkeypatch.setattr(grpc_client.threading, "Thread", lambda target, **_: SimpleNamespace(start=target))
    Cut("127.0.0.1:1", credentials=None, name="north")
    assert pauses[:8] == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0])
    assert pauses[8:] == pytest.approx([0.2] * 4)
