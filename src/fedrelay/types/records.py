"""The records that travel, and those that a run keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

if TYPE_CHECKING:
    from fedrelay.data.federation import ClientData
    from fedrelay.runs.log import RoundLog
    from fedrelay.tasks import Task, Workspaces

Vector: TypeAlias = torch.Tensor
"""One contiguous float32 vector: first every trainable parameter of a model, then the buffers that travel."""

Tree: TypeAlias = Mapping[str, Any]
"""Plain nested data (dicts, tuples, numbers, strings, tensors), so that it can be saved and sent as it is."""


@dataclass(frozen=True)
class Baton:
    """The model that travels, with the weight (in examples) it has gathered since the last merge."""

    params: Vector
    weight: float = 0.0


@dataclass(frozen=True)
class Chain:
    """Who trains after whom, from which baton. `weight` overrides the weighting by examples. `holder` is the client
    that has the baton before the chain begins, where there is no server. `slot` is which of several batons it has, or,
    where chains are compared two by two, which pair it is of."""

    start: Baton
    clients: tuple[int, ...]
    slot: int = 0
    weight: float | None = None
    holder: int | None = None


class Underway(ABC):
    """Where what is done of a long round is kept, so that whoever is stopped goes on from there to the same bits."""

    @abstractmethod
    def find(self, name: str, whose: Callable[[], str], /) -> Tree | None:
        """What was kept by this name, if it is of the same work, which `whose` tells; else None."""

    @abstractmethod
    def keep(self, name: str, whose: Callable[[], str], tree: Callable[[], Tree], /, *, now: bool = False) -> None:
        """Keep this in place of what was there, if it is time for it again (or `now`)."""

    @abstractmethod
    def tell(self, name: str, figures: Mapping[str, tuple[int, int]], /, clients: Sequence[int] = ()) -> None:
        """How far it is, for whoever watches: how many of how many, and of a chain who trains after whom."""

    def names(self) -> Collection[str]:
        """By which names something may be found, for who sends it to another machine; by default none."""
        return ()


@dataclass(frozen=True)
class Place:
    """Where one chain keeps how far it is."""

    underway: Underway
    name: str
    whose: Callable[[], str]
    clients: tuple[int, ...] = ()
    figures: dict[str, tuple[int, int]] = field(default_factory=dict)

    def find(self, part: str) -> Tree | None:
        """What this part of the work has kept."""
        return self.underway.find(f"{self.name}-{part}", self.whose)

    def keep(self, part: str, tree: Callable[[], Tree]) -> None:
        """Keep it now and then: `tree` is only asked for when it is time."""
        self.underway.keep(f"{self.name}-{part}", self.whose, tree)

    def tell(self, what: str, done: int, of: int) -> None:
        """How far it is, for whoever watches."""
        self.figures[what] = done, of
        self.underway.tell(self.name, self.figures, self.clients)


@dataclass(frozen=True)
class Visit:
    """What a piece of work finds at a client. Rounds count from 1, hops (positions in the chain) from 0."""

    client: ClientData
    task: Task
    memory: Tree
    shared: Tree
    round: int
    hop: int
    seed: int
    workspaces: Workspaces
    """Where models are trained and looked at; every visit of this process uses the same ones, one after another."""
    pool: torch.Tensor | None = None
    """The models that this visit has made so far, one a row, the received one first; None if it makes only one."""
    part: int = 0
    """Which of several trainings of this visit it is: their random numbers differ."""
    place: Place | None = None
    """Where a long visit keeps how far it is; None: it need not."""
    secret: int | None = None
    """What a real client's noise derives from, and nobody else knows; None: the seed, in a simulation."""

    def weights(self, vector: Vector) -> Vector:
        """The trainable part of a model's vector."""
        return vector[: self.task.layout.trainable]


LATER = "later"
"""In the metadata of a field that records of older runs lack: while it has its default, nothing is said of it, so that
such runs go on."""
GIVEN = "given"
"""In the metadata of a field that the run fills in, not the user: no key of a configuration."""
NOT_JOINED = "has not joined yet"
"""Why a survey has nothing of a client that is known by name and has never come."""
Hop: TypeAlias = tuple[int, int]
"""A client and its place in a chain, from 0."""
ATTACKED = "attacked"
"""Among the metrics of a report that an attacker has sent."""
LAST_GLOBAL = "last_global"
"""In what is shared with clients: the model of the last merge, for works that read it."""
BOUNDED = "bounded"
"""What a report tells of a defence: a step that was shortened."""
SKIPPED = "skipped"
"""What a report tells of a defence: a model that its client did not go on with."""
DISAGREED = "disagreed"
"""What a merge tells of a defence: a pair of chains that did not count."""
POOL_DISTANCES = "pool_distances"
"""What a client sends that was asked how far the models of its pool are from one another: a row for each."""


@dataclass(frozen=True)
class Report:
    """What one hop tells the server: how many examples it processed, and what it sends besides the baton (`uplink`)."""

    client: int
    examples: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    uplink: Tree = field(default_factory=dict)


@dataclass(frozen=True)
class Drop:
    """A client that was lost from its chain, and why."""

    client: int
    hop: int
    reason: str


@dataclass(frozen=True)
class Outcome:
    """What became of a chain: the last good baton, one report per good hop, and who was lost."""

    chain: Chain
    baton: Baton
    reports: tuple[Report, ...]
    dropped: tuple[Drop, ...] = ()
    finished_at: float = 0.0


@dataclass(frozen=True)
class State:
    """Everything a run is, between two rounds; saving it (with the clients' memories) is a checkpoint."""

    round: int
    batons: tuple[Baton, ...]
    shared: Tree
    server: Tree
    memo: Tree
    waiting: tuple[Outcome, ...] = ()
    clock: float = 0.0
    log: RoundLog | None = None
    """What the last round did and cost: one line of rounds.jsonl. None before the first round."""
    participants: tuple[int, ...] = ()
    """The clients that took part in it."""
    trainable: int | None = None
    """How many of a baton's numbers are trained; those after them are buffers. None: all of them."""
    examples: int = 0
    """Of all clients together, whether they take part or not; those that are held out do not count."""
    groups: int = 0
    """Among how many groups the chains of the last round were drawn."""
    slots: int = 1
    """How many batons it had chains for, those that were lost among them."""
    releases: Sequence[int] = ()
    """Where there is privacy: how often every client has told something that noise hides."""
    described: tuple[Any, ...] = ()
    """What it took to describe clients before the coming round, as it will be counted in that round."""
    joined: tuple[int, ...] = ()
    """How many examples every client has that has joined so far, and 0 for those that have not; empty: all had when the
    run began."""
    told: Tree = field(default_factory=dict)
    """What clients have told in surveys, by the work, then by client: kept as long as others may still join."""
    attackers: tuple[int, ...] = ()
    """The clients that attack in the whole run, where the threat has such."""
    device: str = "cpu"
    """What has computed it, by its title: bits are promised on devices of the same one."""


Result: TypeAlias = tuple[Baton, Tree, Report]
"""What a visit leaves behind: the baton, the client's new memory, and what it tells the server."""
