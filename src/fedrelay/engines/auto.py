"""The default engine: measures briefly on the first round, then takes what is fastest for this work on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedrelay.data.federation import Federation
from fedrelay.engines.inline import Inline
from fedrelay.engines.packing import CannotBeSent, pack
from fedrelay.engines.pool.dispatch import Stacks, cores, costs
from fedrelay.engines.pool.engine import Pool
from fedrelay.engines.pool.workers import pack_whole
from fedrelay.engines.relay import LOG, Context, Simulation, attempt, attempt_together, operator_threads
from fedrelay.engines.stacked import Stacked
from fedrelay.errors import BadInput
from fedrelay.tasks import Task
from fedrelay.types import Baton, Chain, Engine, Outcome, Tree, Underway, Visit, Work

KINDS: dict[str, type[Inline] | type[Pool] | type[Stacked]] = {"inline": Inline, "pool": Pool, "stacked": Stacked}

MOST_EXAMPLES = 128
"""Clients are cut down to so many examples for measuring."""

SECONDS = 0.25
"""How long one way is measured."""

MARGIN = 1.1
"""What is not the same bits as inline with one thread must be so many times faster to be taken."""

START = 0.03
"""Seconds a round that workers must save: they take about three seconds to start, and a hundred rounds to earn it."""

HOPELESS = 3
"""Threads that are so many times slower than one thread are waiting for each other: others use the machine too."""

TRIAL = 3
"""So many rounds go by before it is seen whether workers are worth it."""

TRANSPORT = 1.1
"""What going to workers and back is reckoned to cost."""


@dataclass(frozen=True)
class Way:
    """A way to run the round: an engine, its settings, and how long the round is expected to take."""

    name: str
    settings: Mapping[str, Any]
    seconds: float

    @property
    def price(self) -> float:
        """The time, with what speaks against this way."""
        exact = self.name == "pool" or self.settings.get("threads") == 1
        return self.seconds * (1 if exact else MARGIN) + (START if self.settings.get("workers", 1) > 1 else 0)

    @property
    def without_workers(self) -> Way:
        """The way to the same bits in one process."""
        if self.name == "pool":
            return replace(self, name="inline", settings={"threads": 1})
        return replace(self, settings={**self.settings, "workers": 1})

    def __str__(self) -> str:
        words = ", ".join(f"{key} {value}" for key, value in self.settings.items() if value is not None)
        return f"{self.name} ({words})"


@dataclass(frozen=True)
class Trial:
    """Workers on trial: what would be done without them, how long that takes (seconds an example), and how long the
    rounds so far have taken with them."""

    instead: Way
    alone: float
    rounds: list[float]


class Auto(Engine):
    """Measures inline, pool and stacked on a little of the first round and takes the fastest from then on.

    The choice is part of what makes a run repeatable: it is written into the run's config.toml. Before the first round,
    and whenever two ways are about equally fast, it computes as inline with one thread.
    """

    def __init__(self, federation: Federation, task: Task, seed: int = 0, *, memory_limit: float | None = None) -> None:
        self.federation, self.task, self.seed = federation, task, seed
        self.sizes: Sequence[int] = federation.sizes
        self.prepared = federation.source.prepared
        self._explanation = ""
        self._limit = memory_limit
        self._chosen: Mapping[str, Any] | None = None
        self._trial: Trial | None = None
        self._underway: Underway | None = None
        self._engine: Inline | Pool | Stacked = Inline(federation, task, seed, memory_limit=memory_limit)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The engine that was chosen, as a configuration would say it; `auto` until then."""
        limit = {} if self._limit is None else {"memory_limit": self._limit}
        return {**({"name": "auto"} if self._chosen is None else self._chosen), **limit}

    @property
    def explanation(self) -> str:
        return self._explanation

    def choose(self, settings: Mapping[str, Any]) -> None:
        """Take this engine, without measuring."""
        rest = {key: value for key, value in settings.items() if key not in ("name", "memory_limit")}
        if settings["name"] not in KINDS:
            raise BadInput(f"auto chooses among {', '.join(KINDS)}, not {settings['name']!r}")
        kind = KINDS[settings["name"]]
        try:
            engine = kind(self.federation, self.task, self.seed, memory_limit=self._limit, **rest)
        except TypeError as error:  # the settings come from a file
            raise BadInput(f"the engine {settings['name']} cannot have {rest!r:.200}: {error}") from error
        engine.remember(*self._engine.memories())
        if self._underway is not None:
            engine.keep_in(self._underway)
        self.close()
        self._engine, self._chosen = engine, {"name": settings["name"], **rest}

    def run(self, work: Work, chains: Sequence[Chain], shared: Tree, round: int, /) -> Iterator[Outcome]:
        if round and self._chosen is None and not self._chosen_before():
            self._decide(Context(work, shared, round), chains)
            if self._underway is not None:
                self._underway.keep("engine", self._whose, lambda: {"settings": dict(self.settings)}, now=True)
        elif self._trial is not None and len(self._trial.rounds) == TRIAL:
            self._review(self._trial)
        began = time.perf_counter()
        yield from self._engine.run(work, chains, shared, round)
        if round and self._trial is not None:
            self._trial.rounds.append((time.perf_counter() - began) / sum(costs(chains, self.sizes)))

    def _chosen_before(self) -> bool:
        """Whether this round was under way already: then it goes on as it began, because the bits depend on it."""
        found = None if self._underway is None else self._underway.find("engine", self._whose)
        if found is not None:
            self.choose(found["settings"])
        return found is not None

    def _whose(self) -> str:
        return repr((self.seed, tuple(self.sizes), self.task.layout.size))

    def _decide(self, context: Context, chains: Sequence[Chain]) -> None:
        ways = self._measured(context, chains)
        best = min(ways, key=lambda way: way.price)
        self.choose({"name": best.name, **best.settings})
        others = "; ".join(f"{way} {way.seconds:.3g} s" for way in ways if way is not best)
        self._explanation = f"{best}: about {best.seconds:.3g} s a round" + (f" ({others})" if others else "")
        if best.settings.get("workers", 1) > 1:
            instead = best.without_workers
            seconds = next(way.seconds for way in ways if (way.name, way.settings) == (instead.name, instead.settings))
            self._trial = Trial(instead, seconds / sum(costs(chains, self.sizes)), [])

    def _review(self, trial: Trial) -> None:
        """Workers were only reckoned with; if they turn out slower, the same bits can be had without them."""
        self._trial = None
        if min(trial.rounds[1:]) > trial.alone:  # in the first one they had to start
            self.choose({"name": trial.instead.name, **trial.instead.settings})
            self._explanation = f"{trial.instead}: workers turned out slower"

    def _measured(self, context: Context, chains: Sequence[Chain]) -> list[Way]:
        """Every way that is possible here, with the time the round would take."""
        cost, hands = costs(chains, self.sizes), min(cores(), len(chains))
        sample = Sample(Simulation(self.federation, self.task, self.seed), context, chains, self._engine.memories()[1])
        alone = sample.one_by_one(threads=1)
        ways = [Way("inline", {"threads": 1}, alone * sum(cost))]
        if cores() > 1:
            each = sample.one_by_one(threads=cores(), hopeless=HOPELESS * alone)
            ways.append(Way("inline", {"threads": cores()}, each * sum(cost)))
        hindrance = unsendable(sample.simulation, context) if hands > 1 else ""
        if hindrance:
            LOG.warning("workers are not used: %s", hindrance)
            hands = 1
        if hands > 1:
            ways.append(Way("pool", {"workers": hands}, alone * makespan(cost, hands) * TRANSPORT))
        if len(chains) > 1 and context.work.stacks(self.task):
            most = Stacked(self.federation, self.task).rows
            for rows in sorted({min(most, len(chains)), max(min(most, -(-len(chains) // hands)), 2)}):
                parts = [sum(cost[number] for number in numbers) for numbers in Stacks(chains, self.sizes, rows).all]
                each = sample.together(rows)
                ways.append(Way("stacked", {"rows": rows, "workers": 1}, each * sum(cost)))
                if min(hands, len(parts)) > 1:
                    seconds = each * makespan(parts, hands) * TRANSPORT
                    ways.append(Way("stacked", {"rows": rows, "workers": hands}, seconds))
        return ways

    def keep_in(self, underway: Underway, /) -> None:
        self._underway = underway
        self._engine.keep_in(underway)

    @property
    def names(self) -> Sequence[str]:
        return self.federation.names

    def commit(self, round: int, /) -> None:
        self._engine.commit(round)

    def back_to(self, round: int, /) -> None:
        self._engine.back_to(round)

    def memories(self) -> tuple[int, Mapping[int, Tree]]:
        return self._engine.memories()

    def remember(self, round: int, memories: Mapping[int, Tree], /) -> None:
        self._engine.remember(round, memories)

    def close(self) -> None:
        """End the workers, if there are any."""
        self._engine.close()


class Sample:
    """First visits of a round, cut short, to be made in several ways; nothing of them is kept."""

    def __init__(
        self, simulation: Simulation, context: Context, chains: Sequence[Chain], memories: Mapping[int, Tree]
    ) -> None:
        self.simulation = simulation
        self._work, self._longer = context.work.brief  # a visit may take hours
        self._visits: list[tuple[Baton, Visit]] = []
        for chain in chains[:32]:
            client = chain.clients[0]
            visit = simulation.visit(context, client, memories.get(client, {}), 0)
            cut = replace(visit.client, rows=visit.client.rows[:MOST_EXAMPLES])
            self._visits.append((chain.start, replace(visit, client=cut)))

    def one_by_one(self, threads: int, hopeless: float = float("inf")) -> float:
        """Seconds an example, one visit after another; if the first is hopeless, it is not looked at any longer."""
        with operator_threads(threads):
            began = time.perf_counter()
            size = self._one(0)  # the first one has more to do than the others
            took = time.perf_counter() - began
            given_up = took > max(SECONDS, hopeless / self._longer * size)
            return (took / size if given_up else timed(self._one)) * self._longer

    def _one(self, number: int) -> int:
        baton, visit = self._visits[number % len(self._visits)]
        attempt(self._work, baton, visit)
        return visit.client.size

    def together(self, rows: int) -> float:
        """Seconds an example, so many visits at once."""
        visits = (self._visits * rows)[:rows]
        batons, at = [baton for baton, _ in visits], [visit for _, visit in visits]
        size = sum(visit.client.size for visit in at)

        def all_of_them(number: int) -> int:
            attempt_together(self._work, batons, at)
            return size

        with operator_threads(1):
            all_of_them(0)
            return timed(all_of_them) * self._longer


def unsendable(simulation: Simulation, context: Context) -> str:
    """Why there can be no workers; empty if there can."""
    try:
        pack_whole(simulation)
        pack(context.work)
    except CannotBeSent as error:
        return str(error)
    return ""


def timed(visits: Callable[[int], int]) -> float:
    """Seconds an example: the best of several turns, because others may use the machine too."""
    began, best, number = time.perf_counter(), float("inf"), 0
    while number < 3 or time.perf_counter() - began < SECONDS:
        start = time.perf_counter()
        examples = visits(number)
        best = min(best, (time.perf_counter() - start) / examples)
        number += 1
        if time.perf_counter() - began > 4 * SECONDS:
            break
    return best


def makespan(costs: Sequence[int], workers: int) -> int:
    """What the busiest of the workers has to do, if the longest go first."""
    loads = [0] * workers
    for cost in sorted(costs, reverse=True):
        loads[loads.index(min(loads))] += cost
    return max(loads)
