"""The parts that can be swapped: what clients do, who trains after whom, what becomes of batons, and who runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeAlias

import numpy as np
import torch

from fedrelay.types.records import (
    Baton,
    Chain,
    Drop,
    Outcome,
    Report,
    Result,
    State,
    Tree,
    Underway,
    Vector,
    Visit,
)

if TYPE_CHECKING:
    from fedrelay.algorithms.privacy import Privacy
    from fedrelay.data.examples import Store
    from fedrelay.data.federation import Sent
    from fedrelay.plans.sampling import Sampler, Usually
    from fedrelay.runs.threat import Threat
    from fedrelay.tasks import Predictor, Task


class Work(ABC):
    """One visit: train, describe or evaluate. A frozen, picklable dataclass, so that any engine can send it."""

    @abstractmethod
    def __call__(self, baton: Baton, visit: Visit, /) -> Result: ...

    @property
    def keeps(self) -> tuple[str, ...]:
        """The vectors that it keeps in the clients' memories: as long as the model, its trainable part, or what stays
        at home."""
        return ()

    @property
    def reads_model(self) -> bool:
        """Whether a client needs the model for it; if not, the model is not counted as sent."""
        return True

    @property
    def guard(self) -> float | None:
        """How many times longer than the received model a returned one may be; None: any length will do."""
        return 1e4

    @property
    def bound(self) -> float | None:
        """How far it may move the model; whoever relays shortens what goes farther. None: any distance."""
        return None

    @property
    def reads_global(self) -> bool:
        """Whether a client needs the model of the last merge besides the one it gets (`LAST_GLOBAL` in shared)."""
        return False

    def describing(self, work: Work, /) -> Work:
        """How a client that does this work describes its data by that one: as it is, or with noise."""
        return work

    @property
    def brief(self) -> tuple[Work, float]:
        """A shorter work of the same kind, to see how fast it goes, and how many times longer this one takes."""
        return self, 1.0

    def counted(self, size: int, /) -> int:
        """How many of a client's so many examples count in the weight of a baton."""
        return size

    def at_once(self, size: int, /) -> int:
        """How many of a client's so many examples are worked on at once, at most."""
        return size

    def adapt(self, task: Task, /) -> Task:
        """The task it needs: this one, one whose model has more, or a refusal. Adapting twice changes nothing."""
        return task

    def at_home(self, task: Task, /) -> tuple[slice, ...]:
        """Which numbers of the model never leave a client, that keeps its own in its memory."""
        return ()

    def specimen(self, task: Task, /) -> Tree | None:
        """What a client sends besides the model, by its form alone: tensors of the right type and shape (on torch's
        device `meta`), and 1.0 for a number above zero. None: not said, so anything will do."""
        return None

    def stacks(self, task: Task, /) -> bool:
        """Whether it can make several visits at once with this model (see `together`)."""
        return False

    def together(self, batons: Sequence[Baton], visits: Sequence[Visit], /) -> Sequence[Result]:
        """Several visits at once, one model a row: what they would give one by one, up to rounding."""
        return [self(baton, visit) for baton, visit in zip(batons, visits, strict=True)]


Kind = Literal["weights", "shares", "counts", "information"]
"""What the numbers of a trait are: weights of a network, shares of classes (they sum to 1), numbers of examples of each
class, or how much every filter of a network matters (Fisher information, never negative)."""


class Trait(Work):
    """A Work that describes a client's data (ψ): its report carries one vector, `trait`."""

    kind: ClassVar[Kind]
    """What the numbers are; it decides which distances have a meaning."""

    @property
    def variance(self) -> float:
        """The share of the variance that the principal components keep; 1 keeps the vectors as they are."""
        return 1.0

    @property
    def standardise(self) -> bool:
        """Whether every number is divided by its deviation over the clients before that."""
        return False

    def trained_like(self, local: Work, /) -> Self:
        """The same trait; where it trains at the client and does not say how, as the run trains."""
        return self

    @abstractmethod
    def check(self, task: Task, /) -> None:
        """Refuse a task that this trait cannot describe."""

    def tells(self, task: Task, /) -> tuple[str, ...]:
        """Which tensors of the model a client sends, by name, as they are after training at it."""
        return ()


class Survey(Protocol):
    """Runs a Work once on every client, from the initial model: one report (or drop) per client, as they come.

    What a client sends may be as large as a model: take one answer after another, and keep only what is needed.
    """

    @property
    def task(self) -> Task:
        """What the clients are going to learn."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """What every client is called; none where that is not known."""
        ...

    def __call__(self, work: Work, /) -> Iterator[Report | Drop]: ...


@dataclass(frozen=True)
class Planned:
    """A round as planned: the chains, what to remember of them, and what there is to say of it in the record."""

    memo: Tree
    chains: list[Chain]
    groups: int
    """Among how many groups the chains were drawn."""
    sampling: Tree = field(default_factory=dict)
    """What there is to say of the draw: numbers by name."""
    undescribed: tuple[tuple[int, str], ...] = ()
    """Clients that could not be described and why, said once, in the first round."""
    coming: Mapping[str, Future[Any]] = field(default_factory=dict)
    """What is computed for the next round while this one trains: `learn` takes it into the memo."""
    server_only: bool = False
    """Whether nobody trains in this round, because the server works on with what it has; there is no chain then."""


class Plan(ABC):
    """Who trains after whom, from which model. A frozen dataclass."""

    @abstractmethod
    def init(self, survey: Survey, sizes: Sequence[int], rng: np.random.Generator, /) -> Tree:
        """What the plan must know before the first round (groups, traits): its memo, which only the plan reads. A
        client of size 0 has not joined yet: it is known by its number, and nobody plans for it."""

    @abstractmethod
    def __call__(self, state: State, rng: np.random.Generator, /) -> Planned:
        """The coming round, `state.round + 1`."""

    def learn(self, planned: Planned, outcomes: Sequence[Outcome], /) -> Tree:
        """The memo after the round: what the plan takes from the chains that came back or were lost in it. One that is
        late (where the barrier does not wait) is among them in the round in which it comes."""
        return planned.memo

    def grown(self, state: State, survey: Survey, sizes: Sequence[int], rng: np.random.Generator, /) -> Tree:
        """The memo for the coming round when clients have joined since the last one. A plan that groups does so anew,
        among all that have joined; the survey asks only those who have not told yet."""
        return state.memo

    def fitted(self, *, fraction: float | Usually, sampler: Sampler, local: Work) -> Plan:
        """The same plan for a run in which this share takes part, drawn so, and clients train like this."""
        return self

    @property
    def sampler(self) -> Sampler | None:
        """Who draws; None if everybody is always there."""
        return None

    @property
    def asks_again(self) -> bool:
        """Whether later rounds make up for one from which nothing came."""
        return self.rounds is None

    @property
    def laps(self) -> int:
        """How often a chain goes through its clients in a round."""
        return 1

    @property
    def one_chain(self) -> bool:
        """Whether there is never more than one chain in a round."""
        return False

    @property
    def rounds(self) -> int | None:
        """How many rounds there are to plan; None: as many as one likes."""
        return None


Hearing: TypeAlias = Sequence[Sequence[int]]
"""Of every client, those whose models it gets."""


class Merge(ABC):
    """How the batons that came back become the next ones. A frozen dataclass."""

    def fitted(self, task: Task, seed: int, /) -> Merge:
        """The same merge for this model and seed, where it must know what the numbers are of, or draws; a task that it
        cannot do is refused here, before the first round."""
        return self

    def trained_like(self, local: Work, /) -> Merge:
        """The same merge; where the server trains too, as the clients of the run do."""
        return self

    def with_root(self, held_out: Store | None, /) -> Merge:
        """The same merge; where the server has examples of its own, those that were held out of all clients."""
        return self

    def init(self, params: Vector, clients: int, /) -> tuple[Tree, Tree]:
        """What the server shares with everybody, and what it keeps for itself, before the first round."""
        return {}, {}

    @abstractmethod
    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State: ...

    def tells(self, state: State, outcomes: Sequence[Outcome], /) -> Mapping[str, float]:
        """What there is to say, for the record, of how it merges these: numbers by name."""
        return {}

    def exchanges(self, state: State, /) -> Sequence[Hearing]:
        """What clients send one another in the merge of the round after this state, step by step, if they do."""
        return ()

    @property
    def least_chains(self) -> int:
        """How many chains must come back for it to mean anything."""
        return 1

    @property
    def condition(self) -> str:
        """Where `least_chains` comes from, if that needs saying: "n ≥ 2f + 3 chains for f = 1 of them that lie"."""
        return ""

    @property
    def needs_everyone(self) -> bool:
        """Whether it adds up what every client has done, so that no chain may be given up."""
        return False


Barrier: TypeAlias = Callable[[State, Sequence[Outcome]], tuple[Sequence[Outcome], Sequence[Outcome]]]
"""Which outcomes are merged now, and which wait for a later round."""


@dataclass(frozen=True)
class Algorithm:
    """A method is four choices: plan, update, merge, barrier; `fedrelay.method` makes it of what it changes of FedAvg.

    Without a barrier a merge waits for every chain. `pooled` marks the reference that sees all data as one client.
    `relayed`: what one client of a chain sends to the next goes through the server. `serverless`: there is none, and
    batons stay with clients. `predictor` says how the result predicts; None: as one model, the mean of the batons.
    `threat` says who attacks, and how; None: everybody is honest. `privacy` is what the noise in the update promises.
    """

    plan: Plan
    update: Work
    merge: Merge
    barrier: Barrier | None = None
    pooled: bool = False
    relayed: bool = False
    serverless: bool = False
    predictor: Callable[[State], Predictor] | None = None
    threat: Threat | None = None
    privacy: Privacy | None = None


class Engine(ABC):
    """Relays: folds a Work along every chain. It never sees an algorithm."""

    task: Task
    sizes: Sequence[int]
    """The number of examples of every client."""
    seed: int
    device: torch.device = torch.device("cpu")
    """Where its models are: batons, what clients keep and what the server merges; others are made like them."""
    native: bool = False
    """Whether models are computed by the compiled library where they can be: then they are tested so, too."""
    prepared: Sent | None = None
    """What clients sent so that their data could be prepared, before there was a model; None: nothing."""

    @abstractmethod
    def run(self, work: Work, chains: Sequence[Chain], shared: Tree, round: int, /) -> Iterator[Outcome]:
        """One outcome per chain, in the order of the chains."""

    @abstractmethod
    def commit(self, round: int, /) -> None:
        """Keep the client memories of the chains run since the last commit: this round has ended well."""

    @abstractmethod
    def memories(self) -> tuple[int, Mapping[int, Tree]]:
        """The last committed round, and what clients keep between visits (only clients that kept something)."""

    @abstractmethod
    def remember(self, round: int, memories: Mapping[int, Tree], /) -> None:
        """Put back what `memories` gave (on resume)."""

    def back_to(self, round: int, /) -> None:
        """Undo the last commit, if this is the round before it and no other has begun since.

        For a run that was interrupted between a commit and the state that belongs to it. An engine that cannot does
        nothing: then the rounds since the last checkpoint are done again.
        """

    def saved(self, round: int, /) -> None:
        """The state of this round is in a checkpoint: nobody will go back to an earlier one."""

    @property
    def names(self) -> Sequence[str]:
        """What every client is called; none where that is not known."""
        return ()

    def joined(self) -> Sequence[int]:
        """How many examples every client has that has joined so far, and 0 for those that have not; empty: all are
        there from the beginning, as in every simulation. Asked between runs of chains, never in one."""
        return ()

    def why_stop(self, round: int, /) -> str | None:
        """Why a run stops after this round, from which nothing came (empty: there is no more to say than that); None:
        it goes on with the model that it has. A simulation would only fail again."""
        return ""

    def measured(self) -> Tree:
        """What real messages since the last time took, as the line of a round has it: nothing in a simulation."""
        return {}

    def keep_in(self, underway: Underway, /) -> None:
        """Keep here what is done of a round that is not finished; an engine that does not begins such rounds anew."""

    @property
    def settings(self) -> Mapping[str, Any] | None:
        """How it chose to run, as a configuration would say it; None if it had no choice."""
        return None

    @property
    def explanation(self) -> str:
        """Why it runs as it does, for people; empty if there is nothing to say."""
        return ""

    def close(self) -> None:
        """Give back processes and memory; another round would take them anew."""
