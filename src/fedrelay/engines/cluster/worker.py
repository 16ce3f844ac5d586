"""What runs in a process of the cluster: one thread that runs chains, and another that says how far it is."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from fedrelay.engines.cluster import machine
from fedrelay.engines.cluster.sending import Sent, received, sent
from fedrelay.engines.packing import pack
from fedrelay.engines.pool.signs import NOWHERE
from fedrelay.engines.pool.worker import Reply, Round, failed, keep_memory, perform
from fedrelay.engines.relay import LOG, Signs, Simulation
from fedrelay.types import Tree, Underway

EVERY = 60.0
"""Seconds between two times that a chain's state is kept, as where runs keep it themselves."""


@dataclass(frozen=True)
class Seen:
    """How far a worker is: chain and client by number (`NOWHERE`: none yet), and what is new to tell and to keep."""

    chain: int
    client: int
    told: Mapping[str, Mapping[str, tuple[int, int]]]
    kept: Mapping[str, tuple[str, Sent]]
    said: tuple[str, ...]


class Outbox(Underway):
    """What a chain keeps and tells, until it is fetched: the folder of the run is on another machine."""

    def __init__(self) -> None:
        self.begin({})

    def begin(self, found: Mapping[str, Tree]) -> None:
        """Another job, with what was kept of it before."""
        self._found = found
        self._told: dict[str, Mapping[str, tuple[int, int]]] = {}
        self._kept: dict[str, tuple[str, Sent]] = {}
        self._first = time.monotonic() + EVERY
        self._next: dict[str, float] = {}

    def find(self, name: str, whose: Callable[[], str], /) -> Tree | None:
        return self._found.get(name)  # whose it is was asked where it was read

    def keep(self, name: str, whose: Callable[[], str], tree: Callable[[], Tree], /, *, now: bool = False) -> None:
        if now or time.monotonic() >= self._next.get(name, self._first):
            self._kept[name] = whose(), sent(pack(tree()))  # now, because training goes on
            self._next[name] = time.monotonic() + EVERY

    def tell(self, name: str, figures: Mapping[str, tuple[int, int]], /, clients: Sequence[int] = ()) -> None:
        self._told[name] = dict(figures)

    def fetched(self) -> tuple[dict[str, Mapping[str, tuple[int, int]]], dict[str, tuple[str, Sent]]]:
        """What was told last, and what is to be kept since this was asked before."""
        kept, self._kept = self._kept, {}
        return dict(self._told), kept


class Place(Signs):
    """Which chain is run, and which client it is at."""

    chain = client = NOWHERE

    def run(self, chain: int, /) -> None:
        self.chain, self.client = chain, NOWHERE

    def visit(self, client: int, /) -> None:
        self.client = client


class Said(logging.Handler):
    """Messages for whoever started the run, until they are fetched."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(record.getMessage())

    def fetched(self) -> tuple[str, ...]:
        texts, self._texts = self._texts, []
        return tuple(texts)


class Worker:
    """A process of the cluster. Ray calls `seen` in a thread of its own, and all else one after another."""

    def __init__(self) -> None:
        self._place, self._said = Place(), Said()
        self._simulation: Simulation | None = None
        self._round: Round | None = None
        self._number = 0
        self._outbox: Outbox | None = None
        LOG.addHandler(self._said)
        keep_memory()

    def begin(self, here: Mapping[str, str], simulation: Sent) -> tuple[str, dict[str, str], str]:
        """Where it is, what decides the bits there, and why it cannot run chains; empty if it can."""
        torch.set_num_threads(1)
        where, there = f"pid {os.getpid()} on {platform.node()}", machine.facts()
        if there != here:
            return where, there, ""
        try:
            self._simulation = received(simulation, copy=False)
        except Exception as error:  # code that cannot be imported here, usually
            return where, there, failed(error).failure
        return where, there, ""

    def run(self, number: int, opening: Sent, job: Sent) -> Sent:
        """The reply to a job of the round that has this number, and messages; packed, because their tensors are."""
        try:
            return sent(pack((self._reply(number, opening, job), self._said.fetched())))
        except Exception as error:  # the other side is told, and stops the run with it
            return sent(pack((failed(error), self._said.fetched())))

    def _reply(self, number: int, opening: Sent, job: Sent) -> Reply:
        if self._round is None or self._number != number:
            current: Round = received(opening, copy=False)
            self._round, self._number = current, number
        wanted, found = received(job, copy=True)
        underway = self._round.context.underway
        self._outbox = underway if isinstance(underway, Outbox) else None
        if self._outbox is not None:
            self._outbox.begin(found)
        assert self._simulation is not None
        return perform(self._simulation, self._round, wanted, self._place)

    def seen(self) -> Seen:
        """How far it is, and what has come up since this was asked before."""
        told, kept = ({}, {}) if self._outbox is None else self._outbox.fetched()
        return Seen(self._place.chain, self._place.client, told, kept, self._said.fetched())
