"""The server of a run with real clients: it plans, relays batons from client to client, merges and records."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from fedrelay import config
from fedrelay.config.experiment import REMOTE, Experiment
from fedrelay.data import Federation
from fedrelay.data.federation import Sent
from fedrelay.data.own.brought import ARRAYS, agree, sent_by, standing_in
from fedrelay.engines.remote import Patience, Remote
from fedrelay.errors import BadInput, within
from fedrelay.remote import keys
from fedrelay.remote.addresses import host_of, is_loopback
from fedrelay.remote.bringing import arrays_in
from fedrelay.remote.grpc_server import GrpcWire
from fedrelay.remote.reception import Expected, Reception
from fedrelay.remote.works import works_of
from fedrelay.runs.folder import CONFIG, read_config
from fedrelay.runs.record import Recorder
from fedrelay.tasks import Task
from fedrelay.types import Algorithm, Engine

LOG = logging.getLogger("fedrelay")

MEGABYTE = 1 << 20
GLANCE = 0.2
HOPS = "hops.jsonl"
"""What every visit took: seconds from request to answer, of that at work, and bytes."""
AGREED = "agreed"
"""Where [data] keeps what clients have agreed on, as JSON: a run that goes on needs it."""
TOLD = ("seed", "rounds", "data", "model", "local", "algorithm", "task", "packages")
"""The sections that clients are told of: what they need to build their work, and what they may refuse."""


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


@dataclass(frozen=True)
class Serving:
    """What is served: the tables of an experiment, and whose data it learns.

    Args:
        tables: the configuration.
        own_data: whether clients bring their own; else each takes its part of what [data] names.
        test: a table, or arrays (.npz), of the server's own to test on, where clients bring theirs.
    """

    tables: Mapping[str, Any]
    own_data: bool = False
    test: Path | None = None
    out: Path | None = None
    resume: bool = False
    data_dir: Path | None = None
    patience: Patience = Patience()


class Server:
    """A server: it listens from `open` on, and its clients train when its recorder runs."""

    def __init__(self, serving: Serving, place: Place) -> None:
        self.serving, self.place = serving, place
        self._before = config_in(serving.out) if serving.resume else {}
        self.names = tuple(self._before.get("engine", {}).get("clients", ())) or place.names
        secrets = None if place.keys is None else keys.server_credentials(place.keys)
        self.wire = GrpcWire(place.listen, credentials=secrets)
        self.data = dict(config.section_of(serving.tables, "data"))
        known = None if place.keys is None else partial(keys.why_not, place.keys)
        self.engine: Remote
        self.reception = Reception(self.names, self.data, own=serving.own_data, known=known)

    def build(self, federation: Federation | None = None) -> Experiment:
        """The experiment with this federation, or with what [data] names."""
        tables = {**self.serving.tables, "data": self.data, "engine": {}}
        return config.build(tables, self.serving.data_dir, federation=federation, engine=self._engine)

    def _engine(
        self, algorithm: Algorithm, federation: Federation, task: Task, seed: int
    ) -> tuple[Engine, dict[str, Any]]:
        check_fits(algorithm, federation, self.names)
        self.engine = Remote(
            self.wire,
            task,
            seed,
            sizes=federation.sizes,
            works=works_of(algorithm),
            names=self.names,
            prepared=federation.source.prepared,
            patience=self.serving.patience,
        )
        return self.engine, {"name": REMOTE, "clients": list(self.names)}

    def open(self) -> Recorder:
        """Listen, agree with the clients on their data if it is theirs, and let them in: the run, ready to go."""
        ours = None if self.serving.own_data else self.build()  # mistakes are refused before anybody comes
        self.wire.open(self.reception)
        LOG.info("listening on %s:%d for %s", host_of(self.place.listen), self.wire.port, ", ".join(self.names))
        agreed: Mapping[str, Any] = {}
        if ours is None:
            ours, agreed = self._agree()
        recorder = ours.record(self.serving.out, resume=self.serving.resume)
        self.engine.log = recorder.path / HOPS
        layout = ours.task.layout
        self.wire.largest = largest(self.place, layout.size)
        sizes = None if self.serving.own_data else ours.federation.sizes
        self.wire.offer(offer_of(ours, recorder.path, agreed), Expected(layout.size, layout.trainable, sizes))
        return recorder

    def check(self) -> list[str]:
        """Try what can be tried without a client, and say what was found: configuration, keys, port and disk."""
        found = []
        if self.serving.own_data:
            found.append("configuration: clients bring the data, so it is built when they have come")
        else:
            ours = self.build()
            folder = ours.record(self.serving.out, resume=self.serving.resume).path
            found.append(f"configuration: {ours.name}, {ours.task.layout.size:,} numbers a model, into {folder}")
            found.append(room_for(folder, ours.task.layout.size * 4 * max(len(self.names), 4)))
        if self.place.keys is not None:
            hosts, until = keys.server_facts(self.place.keys)
            found.append(f"keys: for {', '.join(hosts)}, until {until:%Y-%m-%d}")
        else:
            found.append("keys: none, so everything is sent in plain text")
        self.wire.open(self.reception)
        found.append(f"port: {host_of(self.place.listen)}:{self.wire.port} is free")
        return [*found, f"clients: {', '.join(self.names)}"]

    def close(self, *, ended: bool) -> None:
        """Stop; if the run has ended, the clients are let go."""
        self.wire.close(ended=ended)

    def _agree(self) -> tuple[Experiment, Mapping[str, Any]]:
        """Wait for what clients tell of their data, and put it together; a run that goes on has done so before."""
        text = self._before.get("data", {}).get(AGREED)
        if text is None:
            told = self._described()
            sizes = [int(told[name]["rows"]) if name in told else 0 for name in self.names]
            usual = int(median(size for size in sizes if size))  # of who is yet to come, and says then how many it has
            agreed = {**agree(told, self.data), "sizes": [size or usual for size in sizes]}
            text = json.dumps({"agreed": agreed, "sent": [list(part) for part in astuple(sent_by(told, agreed))]})
        try:
            found = json.loads(text)
            agreed, sent = found["agreed"], Sent(*(tuple(part) for part in found["sent"]))
            self.data[AGREED] = text
            test = self.serving.test
            tested = arrays_in(test) if test is not None and agreed["kind"] == ARRAYS else test
            federation = standing_in(self.names, agreed["sizes"], agreed, self.data, test=tested)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, BadInput):
                raise
            raise BadInput(f"[data].{AGREED} cannot be read ({error}): put back an intact config.toml") from None
        federation = replace(federation, source=replace(federation.source, prepared=sent))
        return self.build(federation), agreed

    def _described(self) -> dict[str, Mapping[str, Any]]:
        """What clients tell of their data, by name, once enough of them have."""
        least, said = math.ceil(self.serving.patience.beginning * len(self.names)), -1
        while (found := len(self.reception.descriptions)) < max(least, 1):
            if found != said:
                missing = [name for number, name in enumerate(self.names) if number not in self.reception.descriptions]
                LOG.info(
                    "%d of %d clients have described their data (missing: %s)", found, len(self.names), missing[:10]
                )
                said = found
            time.sleep(GLANCE)
        return {self.names[number]: tree for number, tree in sorted(self.reception.descriptions.items())}


def room_for(folder: Path, size: int) -> str:
    """Refuse a disk that has no room for checkpoints."""
    there = next(part for part in (folder, *folder.absolute().parents) if part.exists())
    free = shutil.disk_usage(there).free
    if free < size:
        raise BadInput(
            f"{there} has {free / MEGABYTE:,.0f} MB left, a checkpoint may need {size / MEGABYTE:,.0f}: make room"
        )
    return f"disk: {free / MEGABYTE:,.0f} MB are left, a checkpoint needs at most {size / MEGABYTE:,.1f}"


def config_in(folder: Path | None) -> Mapping[str, Any]:
    """The configuration of a run that is to go on; nothing if there is none yet."""
    if folder is None or not (folder / CONFIG).is_file():
        return {}
    return read_config(folder / CONFIG)


def check_fits(algorithm: Algorithm, federation: Federation, names: Sequence[str]) -> None:
    """Refuse a method without clients, and another number of them than the data has."""
    if algorithm.pooled:
        raise BadInput("[algorithm]: the centralised reference has no clients: `fedrelay run` runs it")
    if len(federation) != len(names):
        raise BadInput(
            f"[data] is split among {len(federation)} clients, and there are {len(names)} names "
            f"({', '.join(names[:10])}): --set data.clients={len(names)}, or name as many"
        )


def largest(place: Place, numbers: int) -> int:
    """How many bytes a client's message may have: a few models, and what a method may send beside them."""
    if place.largest is not None:
        return int(place.largest * MEGABYTE)
    return 64 * MEGABYTE + 16 * 4 * numbers


def offer_of(experiment: Experiment, folder: Path, agreed: Mapping[str, Any]) -> dict[str, Any]:
    """What every client is told of the run."""
    told = {key: experiment.tables[key] for key in TOLD if key in experiment.tables}
    digest = hashlib.sha256(json.dumps([told, agreed], sort_keys=True).encode()).hexdigest()
    run = hashlib.sha256(f"{experiment.fingerprint} {folder.resolve()}".encode()).hexdigest()[:16]
    return {"run": run, "digest": digest, "tables": told, "agreed": agreed, "clients": len(experiment.federation)}
