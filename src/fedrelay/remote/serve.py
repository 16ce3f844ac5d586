"""The server of a run with real clients, over gRPC: it relays batons from client to client, merges and records."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedrelay.engines.remote import Remote
from fedrelay.errors import BadInput, within
from fedrelay.remote import keys
from fedrelay.remote.addresses import host_of, is_loopback
from fedrelay.remote.grpc_server import GrpcWire
from fedrelay.remote.hosting import MEGABYTE, Host, Serving
from fedrelay.runs.record import Recorder

__all__ = ["Place", "Server", "Serving"]

LOG = logging.getLogger("fedrelay")

OWN = 1_000_000
"""Numbers of a model that there must be room for where its size is not known: the clients' data decides it."""


@dataclass(frozen=True)
class Place:
    """Where a server listens, and to whom.

    Args:
        listen: `HOST:PORT`; port 0 is any that is free.
        clients: who takes part; with keys, none are all whose keys are valid.
        keys: a folder of keys.
        plain_text: without keys, also where others than this machine can listen in.
        largest: megabytes of a message of a client; None: what goes with the model.
    """

    listen: str
    clients: tuple[str, ...] = ()
    keys: Path | None = None
    plain_text: bool = False
    largest: float | None = None

    def __post_init__(self) -> None:
        host = host_of(self.listen)
        if self.largest is not None:
            within("--largest", self.largest, above=0)
        if self.keys is not None and self.plain_text:
            raise BadInput("--keys and --plain-text exclude each other: give one of them")
        if self.keys is None and not self.plain_text and not is_loopback(host):
            raise BadInput(
                f"{self.listen} can be reached by others: --keys DIR encrypts and lets in only whom you know "
                "(`fedrelay keys make` makes them); --plain-text does without"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Who takes part, in the order of their numbers."""
        found = self.clients
        if self.keys is not None:
            known = keys.valid_names(self.keys)
            found = found or known
            strange = next((name for name in found if name not in known), None)
            if strange is not None:
                raise BadInput(
                    f"--clients: {strange!r:.80} has no valid key in {self.keys} (valid: {', '.join(known)})"
                )
        if not found:
            raise BadInput("the server must know its clients: --clients north,south names them, or --keys DIR does")
        keys.check_names(found)
        return tuple(sorted(found))


class Server:
    """A server: it listens from `open` on, and its clients train when its recorder runs."""

    def __init__(self, serving: Serving, place: Place) -> None:
        self.place = place
        secrets = None if place.keys is None else keys.server_credentials(place.keys)
        self.wire = GrpcWire(place.listen, credentials=secrets)
        known = None if place.keys is None else partial(keys.why_not, place.keys)
        most = None if place.largest is None else int(place.largest * MEGABYTE)
        self.host = Host(serving, lambda: place.names, self.wire, known=known, largest=most)

    @property
    def engine(self) -> Remote:
        return self.host.engine

    def open(self) -> Recorder:
        """Listen and let clients in: the run, ready to go."""
        return self.host.open()

    def check(self) -> list[str]:
        """Try what can be tried without a client, and say what was found: configuration, keys, port and disk."""
        serving = self.host.serving
        ours = self.host.rehearse() if serving.own_data else self.host.build()
        folder, numbers = ours.record(serving.out, resume=serving.resume).path, ours.task.layout.size
        size = "as long as the clients' data makes it" if serving.own_data else f"{numbers:,} numbers a model"
        found = [f"configuration: {ours.name}, {size}, into {folder}"]
        least = max(numbers, OWN) if serving.own_data else numbers
        found.append(room_for(folder, least * 4 * max(len(self.host.names), 4)))
        if self.place.keys is not None:
            hosts, until = keys.server_facts(self.place.keys)
            found.append(f"keys: for {', '.join(hosts)}, until {until:%Y-%m-%d}")
        else:
            found.append("keys: none, so everything is sent in plain text")
        self.wire.open(self.host.reception)
        found.append(f"port: {host_of(self.place.listen)}:{self.wire.port} is free")
        return [*found, f"clients: {', '.join(self.host.names)}"]

    def close(self, *, ended: bool) -> None:
        """Stop; if the run has ended, the clients are let go."""
        self.wire.close(ended=ended)


def room_for(folder: Path, size: int) -> str:
    """Refuse a disk that has no room for checkpoints."""
    there = next(part for part in (folder, *folder.absolute().parents) if part.exists())
    free = shutil.disk_usage(there).free
    if free < size:
        raise BadInput(
            f"{there} has {free / MEGABYTE:,.0f} MB left, a checkpoint may need {size / MEGABYTE:,.0f}: make room"
        )
    return f"disk: {free / MEGABYTE:,.0f} MB are left, a checkpoint needs at most {size / MEGABYTE:,.1f}"
