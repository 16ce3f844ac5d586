"""Joining a Ray cluster: where it is, whether it answers, and how many workers it has room for.

Ray is imported here and nowhere else, and only when it is needed: it is an extra, and takes a second.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from fedrelay.engines.pool.dispatch import cores
from fedrelay.errors import BadInput, RunFailed
from fedrelay.system.processes import undisturbed

PATIENCE = 5.0
"""Seconds that whoever is at an address has to answer."""

WAIT = "RAY_gcs_server_port_wait_time_s"
"""Says how many seconds Ray waits for the head of a cluster: half a minute for its own, a quarter of an hour else."""

TOKEN = "RAY_AUTH_TOKEN"
"""Without it, nobody may use a cluster that asks for it."""

ROOM = 64 << 20
"""Bytes that models need in an object store, beside the data."""

EXPECTED = (
    '"local" (a cluster of this machine alone, for this program), "auto" (the one that this machine belongs to, or '
    'that RAY_ADDRESS names) or HOST:PORT of its head, such as "10.0.0.1:6379"'
)


JOINED = set[str]()
"""Addresses by which this program has found the cluster that it is connected to."""


def check_installed() -> None:
    """Refuse to go on without Ray."""
    if importlib.util.find_spec("ray") is None:
        raise BadInput('Ray is not installed: pip install "fedrelay[ray]"')


def check_address(address: str) -> None:
    """Refuse what cannot be the address of a cluster."""
    if address.startswith("ray://"):
        raise BadInput(
            f"address {address!r:.200} is one of Ray Client, which is not supported: start the run on a machine of the "
            f"cluster (`ray job submit` does). Expected {EXPECTED}"
        )
    if address not in ("local", "auto"):
        host, _, port = address.rpartition(":")
        if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port[:6]) < 1 << 16:
            raise BadInput(f"address {address!r:.200} is none of a Ray cluster: expected {EXPECTED}")


def load() -> Any:
    """Ray itself. Nothing is told to its makers, unless the user has said so."""
    check_installed()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    return ray


def join(address: str, *, talks: bool = False) -> Any:
    """Ray, connected to the cluster at this address; a program has one connection, which lasts as long as it does.

    With `talks`, what processes there print is printed here.
    """
    check_address(address)
    ray = load()
    if ray.is_initialized():
        check_joined(ray.get_runtime_context().gcs_address, address)
        return ray
    JOINED.clear()
    settings: dict[str, Any] = {}
    if address == "local":
        settings = {"num_cpus": cores(), "include_dashboard": False}
        os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's own is 15: workers would wait for everybody else
    elif address != "auto":
        check_answers(address)
    try:
        # Undisturbed, also because Ray would hear SIGTERM in our place from now on.
        wait = 120 if address == "local" else 1  # 1 is one attempt, of 40 seconds
        with undisturbed(), waiting(wait), lent_token(address):
            ray.init(address=address, log_to_driver=talks, logging_level=logging.ERROR, **settings)
    except Exception as error:  # of many kinds, even of none
        ray.shutdown()
        raise not_joined(address, error) from error
    JOINED.add(address)
    return ray


@cache
def own_token() -> str:
    """The token of all clusters that this program starts."""
    return secrets.token_hex(32)


@contextmanager
def lent_token(address: str) -> Iterator[None]:
    """Inside, a cluster of our own has a token: Ray's own way is a file in the home folder that all can read. Ray has
    read it when it is connected, and so have the processes of the cluster; no other one needs to inherit it."""
    if address != "local" or any(name in os.environ for name in (TOKEN, f"{TOKEN}_PATH")):
        yield
        return
    os.environ[TOKEN] = own_token()
    try:
        yield
    finally:
        os.environ.pop(TOKEN, None)


@contextmanager
def waiting(seconds: int) -> Iterator[None]:
    """Inside, Ray waits so long for the head of a cluster, unless the user has said otherwise."""
    told = WAIT in os.environ
    os.environ.setdefault(WAIT, str(seconds))
    try:
        yield
    finally:
        if not told:
            del os.environ[WAIT]


def not_joined(address: str, error: Exception) -> BadInput | RunFailed:
    """Why there is no connection: for a cluster of our own, it is not the address that is wrong."""
    why, said = in_a_line(error), str(error.__cause__ or error)
    if said.startswith("Version mismatch"):  # what was expected and what was found, each in lines of its own
        why = f"{' '.join(said.split())}. Install the same versions on all machines"
    if address == "local":
        return RunFailed(
            f"Ray could not start a cluster on this machine: {why}; if the machine is busy, or short of memory, try "
            "again later; the engine pool needs no cluster"
        )
    return BadInput(f"no Ray cluster could be joined by address {address!r}: {why}. Expected {EXPECTED}")


def check_joined(joined: str, address: str) -> None:
    if address not in ("local", "auto", joined, *JOINED):
        raise BadInput(
            f"this program is connected to the Ray cluster {joined} already, and can have one at a time: leave out "
            f"address = {address!r}, or call ray.shutdown() first"
        )


def check_answers(address: str) -> None:
    """Refuse an address where nobody listens: Ray itself would try for minutes, and then end the program."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
    except (OSError, UnicodeError) as error:  # the latter of a name that is none
        why = getattr(error, "strerror", None) or error
        raise BadInput(
            f"nobody answers at address {address!r:.200} ({why}): is it the head of a Ray cluster, as `ray status` or "
            "`ray start --head` says it, and does no firewall stand between?"
        ) from error


def in_a_line(error: BaseException) -> str:
    """What is wrong: the last line that says something, because Ray puts a traceback above it, or identifiers."""
    lines = [line.strip() for line in str(error.__cause__ or error).splitlines()]
    return next((line for line in reversed(lines) if line), type(error).__name__)[:500].rstrip(".")


def place_of(error: BaseException) -> str:
    """Where something went wrong, as Ray tells it in its text."""
    found = re.search(r"pid=\d+, ip=[^,)\s]+", str(error))
    return found.group() if found else "on an unknown machine"


@dataclass(frozen=True)
class Node:
    """A machine of the cluster: its address, workers that it has room for, bytes of its object store."""

    address: str
    workers: int
    store: int


def nodes_of(ray: Any) -> list[Node]:
    """The machines that are there now and have a CPU for us."""
    found = [
        Node(
            one["NodeManagerAddress"],
            int(one["Resources"].get("CPU", 0)),
            int(one["Resources"].get("object_store_memory", 0)),
        )
        for one in ray.nodes()
        if one["Alive"]
    ]
    return [one for one in found if one.workers]


def workers_for(nodes: list[Node], asked: int | None, called: str = "workers") -> int:
    """How many workers (or jobs) there will be: as many as asked for, or one per CPU."""
    most = sum(one.workers for one in nodes)
    if not most:
        raise BadInput("the Ray cluster has no CPU: start it with --num-cpus=1 at least, on one machine at least")
    if asked is not None and asked > most:
        raise BadInput(
            f"{called} = {asked}, but the Ray cluster has {most} CPU(s) on {len(nodes)} machine(s), and each takes "
            f"one: say {most} at most, or leave {called} out, which takes all"
        )
    return asked or most


def check_room(nodes: list[Node], size: int) -> None:
    """Refuse machines whose object store cannot hold the data."""
    needed = size + ROOM
    for one in nodes:
        if one.store < needed:
            raise BadInput(
                f"the data set takes {size / 1e6:.0f} MB of every machine's object store, with models "
                f"{needed / 1e6:.0f} MB, but that of {one.address} has {one.store / 1e6:.0f} MB: start Ray with "
                f"--object-store-memory={needed} or more (and join it by `address`)"
            )
