"""Hand a message to the client's own process, which stays from message to message; start it where there is none.

A ClientApp process is new for every message. To import torch and to read the data would take longer than all else, so
they are in a process beside it: it listens in the client's folder, which is its owner's alone, and lets in only who has
read the key there. Nothing here imports torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from fedrelay.errors import BadInput
from fedrelay.remote.flower.node import Node
from fedrelay.remote.flower.records import Parcel
from fedrelay.system import files

ADDRESS, LOG = "process.json", "process.log"
"""Where a client's process listens, and what it says."""
STARTING = 300.0
"""Seconds in which it must listen."""
MODULE = "fedrelay.remote.flower.resident"
ABSENT = (OSError, EOFError, AuthenticationError, ValueError, KeyError, TypeError, IndexError)


def asked(node: Node, parcel: Parcel) -> bytes:
    """What the client's process answers."""
    connection = _found(node) or _started(node)
    with connection:
        about = {name: getattr(parcel, name) for name in ("run", "digest", "proof", "origin")}
        connection.send_bytes(json.dumps(about).encode())
        connection.send_bytes(parcel.message)
        try:
            return connection.recv_bytes()
        except (EOFError, OSError):
            raise RuntimeError(f"its process has ended in the middle of it; {LOG} in its home says more") from None


def _found(node: Node) -> Connection[Any, Any] | None:
    """A connection to the process that is there; one that is another node's, or of another set-up, is ended."""
    try:
        told = json.loads((Path(node.home) / ADDRESS).read_bytes())
        address = told["address"]  # of a socket in the client's folder; a host and a port where there are none
        where = address if isinstance(address, str) else (str(address[0]), int(address[1]))
        connection = Client(where, authkey=bytes.fromhex(told["key"]))
    except ABSENT:
        return None
    if told.get("node") == node.text and told.get("parent") == os.getppid():
        return connection
    with suppress(OSError, EOFError), connection:
        connection.send_bytes(b"")
        connection.recv_bytes()
    return None


def _started(node: Node) -> Connection[Any, Any]:
    """A connection to a new process."""
    home = Path(node.home)
    try:
        home.mkdir(mode=files.PRIVATE_FOLDER, parents=True, exist_ok=True)
        (home / ADDRESS).unlink(missing_ok=True)
        log = os.open(home / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, files.PRIVATE)
    except OSError as error:
        raise BadInput(f"{home} cannot be written ({error.strerror or error}): name another home=…") from None
    try:
        command = [sys.executable, "-m", MODULE, node.text, str(os.getppid())]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    finally:
        os.close(log)
    until = time.monotonic() + STARTING
    while time.monotonic() < until:
        found = _found(node)
        if found is not None:
            process.returncode = 0  # it outlives us, and is nobody's child then: nothing to wait for
            return found
        if process.poll() is not None:
            lines = (home / LOG).read_text(encoding="utf-8", errors="replace").split("\n")
            raise BadInput(next((line for line in reversed(lines) if line.strip()), "its process has ended")[:1000])
        time.sleep(0.02)
    process.kill()
    raise BadInput(f"its process did not listen within {STARTING:g} seconds; see {home / LOG}")
