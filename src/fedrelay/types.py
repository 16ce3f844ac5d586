"""The whole vocabulary: the records that travel, and the protocols of what can be swapped.

A run repeats: *plan* chains of clients, *relay* a baton along each chain, *merge* the batons that came back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import torch

if TYPE_CHECKING:
    from fedrelay.data.federation import ClientData
    from fedrelay.tasks.task import Task

Vector: TypeAlias = torch.Tensor
"""One contiguous float32 vector: first every trainable parameter of a model, then its float buffers."""

Tree: TypeAlias = Mapping[str, Any]
"""Plain nested data (dicts, tuples, numbers, strings, tensors), so that it can be saved and sent as it is."""


@dataclass(frozen=True)
class Baton:
    """The model that travels, with the weight (in examples) it has gathered since the last merge."""

    params: Vector
    weight: float = 0.0


@dataclass(frozen=True)
class Chain:
    """Who trains after whom, from which baton. `weight` overrides the weighting by examples."""

    start: Baton
    clients: tuple[int, ...]
    slot: int = 0
    weight: float | None = None


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
    log: Tree = field(default_factory=dict)
    """What the last round did and cost: one line of rounds.jsonl (but for the list of who took part)."""
    trainable: int | None = None
    """How many of a baton's numbers are trained; those after them are buffers. None: all of them."""
    examples: int = 0
    """Of all clients together, whether they take part or not."""


class Work(Protocol):
    """One visit: train, describe or evaluate. A frozen, picklable dataclass, so that any engine can send it."""

    def __call__(self, baton: Baton, visit: Visit, /) -> tuple[Baton, Tree, Report]: ...


class Together(Work, Protocol):
    """A Work that can also make several visits at once, one model a row; an engine may use that or not."""

    def stacks(self, task: Task, /) -> bool:
        """Whether it can, with this model."""
        ...

    def together(self, batons: Sequence[Baton], visits: Sequence[Visit], /) -> Sequence[tuple[Baton, Tree, Report]]:
        """What the visits one by one would give, up to rounding."""
        ...


class Plan(Protocol):
    """Who trains after whom, from which model."""

    def init(self, probe: Probe, sizes: Sequence[int], rng: np.random.Generator) -> Tree:
        """What the plan must know before the first round (groups, traits); `probe` runs a Work on every client."""
        ...

    def __call__(self, state: State, rng: np.random.Generator) -> tuple[Tree, list[Chain]]:
        """The new memo and the chains of the coming round, `state.round + 1`."""
        ...

    def learn(self, memo: Tree, outcomes: Sequence[Outcome]) -> Tree:
        """The memo after the round: what the plan takes from the chains that came back or were lost in it. One that is
        late (where the barrier does not wait) is among them in the round in which it comes."""
        ...


class Merge(Protocol):
    """How the batons that came back become the next ones."""

    def init(self, params: Vector, clients: int) -> tuple[Tree, Tree]:
        """What the server shares with everybody, and what it keeps for itself, before the first round."""
        ...

    def __call__(self, state: State, outcomes: Sequence[Outcome]) -> State: ...


class Probe(Protocol):
    """Runs a Work once on every client, from the initial model: one report (or drop) per client, as they come.

    What a client sends may be as large as a model: take one answer after another, and keep only what is needed.
    """

    @property
    def task(self) -> Task:
        """What the clients are going to learn."""
        ...

    def __call__(self, work: Work, /) -> Iterator[Report | Drop]: ...


Barrier: TypeAlias = Callable[[State, Sequence[Outcome]], tuple[Sequence[Outcome], Sequence[Outcome]]]
"""Which outcomes are merged now, and which wait for a later round."""


@dataclass(frozen=True)
class Algorithm:
    """A method is four choices: plan, update, merge, barrier.

    `slots` batons coexist at the start. `pooled` marks the reference that sees all data as one client. `relayed`: what
    one client of a chain sends to the next goes through the server.
    """

    plan: Plan
    update: Work
    merge: Merge
    barrier: Barrier
    slots: int = 1
    pooled: bool = False
    relayed: bool = False


class Engine(Protocol):
    """Relays: folds a Work along every chain. It never sees an algorithm."""

    @property
    def task(self) -> Task: ...
    @property
    def sizes(self) -> Sequence[int]:
        """The number of examples of every client."""
        ...

    @property
    def seed(self) -> int: ...

    def run(self, work: Work, chains: Sequence[Chain], shared: Tree, round: int, /) -> Iterator[Outcome]:
        """One outcome per chain, in the order of the chains."""
        ...

    def commit(self, round: int, /) -> None:
        """Keep the client memories of the chains run since the last commit: this round has ended well."""
        ...

    def memories(self) -> tuple[int, Mapping[int, Tree]]:
        """The last committed round, and what clients keep between visits (only clients that kept something)."""
        ...

    def remember(self, round: int, memories: Mapping[int, Tree], /) -> None:
        """Put back what `memories` gave (on resume)."""
        ...
