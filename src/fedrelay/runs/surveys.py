"""Getting to know clients: all of them before the first round, and later those who join while the run goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

from fedrelay import seeds
from fedrelay.errors import BadInput
from fedrelay.runs import costs
from fedrelay.runs.latency import Pace
from fedrelay.tasks import Task
from fedrelay.types import NOT_JOINED, Algorithm, Baton, Chain, Drop, Engine, Report, State, Trait, Vector, Work


@dataclass
class ClientSurvey:
    """Runs a Work once on every client, before the first round (in round 0), from the initial model; and counts what
    that takes: traffic, and simulated seconds, if there is a pace. All clients work at the same time.

    Where not all have `joined`, only those who have are asked, and what they tell is kept in `told`: when others join,
    nobody is asked twice.
    """

    engine: Engine
    params: Vector
    pace: Pace | None = None
    traffic: costs.Traffic = costs.Traffic()
    seconds: float = 0.0
    home: tuple[slice, ...] = ()
    """What of the model never leaves a client."""
    joined: Sequence[int] = ()
    """As in a state: empty if all have."""
    told: Mapping[str, Mapping[int, Report]] = field(default_factory=dict)
    update: Work | None = None
    """What clients do in rounds: it says whether they tell of their data as it is."""

    @property
    def task(self) -> Task:
        return self.engine.task

    @property
    def names(self) -> Sequence[str]:
        return self.engine.names

    def __call__(self, work: Work, /) -> Iterator[Report | Drop]:
        if isinstance(work, Trait) and self.home:
            check_private(work, self.home, self.task)
        work = work if self.update is None else self.update.describing(work)
        known = dict(self.told.get(repr(work), {}))
        asked = [client for client in self.clients if client not in known]
        answers = self._asked(work, asked) if asked else iter(())
        for client in range(len(self.engine.sizes)):
            if client in known:
                yield known[client]
            elif self.joined and not self.joined[client]:
                yield Drop(client, 0, NOT_JOINED)
            else:
                answer = next(answers)
                if self.joined and isinstance(answer, Report):
                    known[client] = answer
                yield answer
        assert next(answers, None) is None  # the engine comes to its end, and so does the clock
        if self.joined:
            self.told = {**self.told, repr(work): known}

    @property
    def clients(self) -> Sequence[int]:
        """Those who can be asked."""
        every = range(len(self.engine.sizes))
        return [client for client in every if self.joined[client]] if self.joined else every

    def _asked(self, work: Work, clients: Sequence[int]) -> Iterator[Report | Drop]:
        home, longest = at_home(self.home, self.task), 0.0
        chains = [Chain(Baton(self.params), (client,)) for client in clients]
        for outcome in self.engine.run(work, chains, {}, 0):
            sent = costs.describing(outcome, work, self.params, home)
            self.traffic += sent
            if self.pace is not None:
                longest = max(longest, self.pace.described(outcome, sent.bytes[0]))
            yield outcome.reports[0] if outcome.reports else outcome.dropped[0]
        self.seconds += longest


def check_private(trait: Trait, home: Sequence[slice], task: Task) -> None:
    """Refuse a trait that sends what must not leave a client."""
    names = trait.tells(task)
    for entry in task.layout.entries:
        if entry.name in names and any(place.start <= entry.start < place.stop for place in home):
            raise BadInput(
                f"{type(trait).__name__} sends {entry.name}, and that stays at home: take another trait, or none"
            )


def at_home(home: Sequence[slice], task: Task) -> costs.Home:
    """How many numbers of a vector as long as the model, or its trainable part, never leave a client."""
    lengths = (task.layout.trainable, task.layout.size) if home else ()
    return {length: sum(min(place.stop, length) - min(place.start, length) for place in home) for length in lengths}


def with_newcomers(algorithm: Algorithm, engine: Engine, state: State) -> State:
    """The state before a round to which clients have come that had not joined yet: they are described, and planned for
    with all others. While chains of earlier rounds still run they wait: those chains go by the groups that were."""
    if 0 not in state.joined or state.waiting:
        return state
    sizes = tuple(before or now for before, now in zip(state.joined, engine.joined(), strict=True))
    if sizes == state.joined:
        return state
    home = algorithm.update.at_home(engine.task)
    survey = ClientSurvey(
        engine,
        engine.task.init(engine.seed).to(engine.device),
        home=home,
        joined=sizes,
        told=state.told,
        update=algorithm.update,
    )
    memo = algorithm.plan.grown(state, survey, sizes, seeds.rng(engine.seed, "plan"))
    return replace(
        state,
        memo=memo,
        joined=sizes,
        told=survey.told if 0 in sizes else {},
        examples=sum(algorithm.update.counted(size) for size in sizes if size),
        described=astuple(survey.traffic),
    )


def newcomers(before: State, now: State) -> tuple[int, ...]:
    """Who takes part from the coming round on; nobody where all were there when the run began."""
    new = not before.round
    return tuple(client for client, size in enumerate(now.joined) if size and (new or not before.joined[client]))
