"""The default engine: measures briefly on the first round, then takes what is fastest for this work on this machine."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedrelay.data.federation import Federation
from fedrelay.engines.inline import Inline
from fedrelay.engines.packing import CannotBeSent, pack
from fedrelay.engines.pool.dispatch import Stacks, cores, costs
from fedrelay.engines.pool.engine import Pool
from fedrelay.engines.pool.workers import pack_whole
from fedrelay.engines.relay import LOG, Context, Simulation
from fedrelay.engines.sample import Sample
from fedrelay.engines.stacked import Stacked, rows_of
from fedrelay.errors import BadInput, RunFailed
from fedrelay.kernels.native import available as found_native
from fedrelay.kernels.workspace import Computing, Precision
from fedrelay.system.devices import chosen, every
from fedrelay.tasks import Task
from fedrelay.types import Chain, Engine, Outcome, Tree, Underway, Work

KINDS: dict[str, type[Inline] | type[Pool] | type[Stacked]] = {"inline": Inline, "pool": Pool, "stacked": Stacked}

MARGIN = 1.1
"""What is not the same bits as inline with one thread must be so many times faster to be taken."""

START = 0.015
"""Seconds a round that workers must save: they take about three seconds to start, and 200 rounds to earn it."""

HOPELESS = 3
"""Threads that are so many times slower than one thread are waiting for each other: others use the machine too."""

TRIAL = 3
"""So many rounds go by before it is seen whether workers, or threads, are worth it."""

CONTROL = 2
"""So many rounds without them show whether they were slower, or all is slower because others use the machine too."""

TRANSPORT = 1.1
"""What going to workers and back is reckoned to cost."""

WAITING = 1e-4
"""Seconds a visit that threads are reckoned to wait for one another's turns in the interpreter."""

MEASURED = 16
"""So many visits at once are measured at most: natively each is trained alone."""

LONG = 10.0
"""Seconds of a round that must not be lost: what is done of it is kept, which is so where chains run one by one."""


@dataclass(frozen=True)
class Way:
    """A way to run the round: an engine, its settings, and how long the round is expected to take."""

    name: str
    settings: Mapping[str, Any]
    seconds: float

    @property
    def price(self) -> float:
        """The time, with what speaks against this way."""
        exact = not self.settings.get("native") and (self.name == "pool" or self.settings.get("threads") == 1)
        return self.seconds * (1 if exact else MARGIN) + (START if self.settings.get("workers", 1) > 1 else 0)

    @property
    def shared(self) -> bool:
        """Whether several processes or threads make visits at once."""
        return self.settings.get("workers", 1) > 1 or (self.name == "stacked" and self.settings.get("threads", 1) > 1)

    @property
    def hands(self) -> str:
        """What makes them, in a word."""
        return "workers" if self.settings.get("workers", 1) > 1 else "threads"

    @property
    def alone(self) -> Way:
        """The way to the same bits in one thread."""
        if self.name == "pool":
            native = {key: value for key, value in self.settings.items() if key == "native"}
            return replace(self, name="inline", settings={"threads": 1, **native})
        several = {"workers", "threads"} & self.settings.keys()
        return replace(self, settings={**self.settings, **dict.fromkeys(several, 1)})

    def __str__(self) -> str:
        kept = {key: value for key, value in self.settings.items() if value is not None}
        words = ", ".join(key if value is True else f"{key} {value}" for key, value in kept.items())
        return f"{self.name} ({words})"


@dataclass(frozen=True)
class Trial:
    """Workers or threads on trial: the way with them and the way to the same bits without, how long the latter should
    take (seconds an example), and how long rounds have taken, first with them and then, if they look slower, without.
    """

    way: Way
    instead: Way
    alone: float
    rounds: list[float]
    without: list[float] = field(default_factory=list)
    alone_now: bool = False

    @property
    def measured(self) -> list[float]:
        """Where the time of the coming round belongs."""
        return self.without if self.alone_now else self.rounds


class Auto(Engine):
    """Measures inline, pool and stacked on a little of the first round, natively too where that can be, and takes the
    fastest from then on.

    The choice is part of what makes a run repeatable: it is written into the run's config.toml. Before the first round,
    and whenever two ways are about equally fast, it computes as inline with one thread.

    On a `device`, as inline has it, it chooses between one chain after another, stacks, and a process for each of
    several GPUs. `precision` and `compile` are as inline has them, and leave out stacks.
    """

    def __init__(
        self,
        federation: Federation,
        task: Task,
        seed: int = 0,
        *,
        memory_limit: float | None = None,
        device: str = "cpu",
        precision: Precision = "float32",
        compile: bool = False,
    ) -> None:
        self.federation, self.task, self.seed = federation, task, seed
        self._computing = Computing.of(device, precision, compiled=compile)
        self.device = self._computing.device
        usual = {"device": "cpu", "precision": "float32", "compile": False}
        asked = {"device": chosen(device), "precision": precision, "compile": compile}
        self._asked = {key: value for key, value in asked.items() if value != usual[key]}
        self.sizes: Sequence[int] = federation.sizes
        self.prepared = federation.source.prepared
        self._explanation = ""
        self._limit = memory_limit
        self._chosen: Mapping[str, Any] | None = None
        self._trial: Trial | None = None
        self._fits = False  # what it chose among was seen to find room
        self._underway: Underway | None = None
        self._engine: Inline | Pool | Stacked = Inline(
            federation, task, seed, memory_limit=memory_limit, device=device, precision=precision, compile=compile
        )

    @property
    def settings(self) -> Mapping[str, Any]:
        """The engine that was chosen, as a configuration would say it; `auto` until then."""
        limit = {} if self._limit is None else {"memory_limit": self._limit}
        return {**({"name": "auto", **self._asked} if self._chosen is None else self._chosen), **limit}

    @property
    def explanation(self) -> str:
        return self._explanation

    def choose(self, settings: Mapping[str, Any]) -> None:
        """Take this engine, without measuring."""
        said = {key: value for key, value in settings.items() if key not in ("name", "memory_limit")}
        rest = {**self._asked, **said}
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
        if self._fits:
            engine.has_room()
        self.close()
        self._engine, self._chosen = engine, {"name": settings["name"], **rest}
        self.native = engine.native

    def run(self, work: Work, chains: Sequence[Chain], shared: Tree, round: int, /) -> Iterator[Outcome]:
        if round and self._chosen is None and not self._chosen_before():
            self._decide(Context(work, shared, round), chains)
            if self._underway is not None:
                self._underway.keep("engine", self._whose, lambda: {"settings": dict(self.settings)}, now=True)
        elif self._trial is not None:
            self._review(self._trial)
        began, measured = time.perf_counter(), None if self._trial is None else self._trial.measured
        yield from self._engine.run(work, chains, shared, round)
        if round and measured is not None:
            measured.append((time.perf_counter() - began) / sum(costs(chains, self.sizes)))

    def _chosen_before(self) -> bool:
        """Whether this round was under way already: then it goes on as it began, because the bits depend on it."""
        found = None if self._underway is None else self._underway.find("engine", self._whose)
        if found is not None:
            self.choose(found["settings"])
        return found is not None

    def _whose(self) -> str:
        sizes = hashlib.sha256(np.asarray(self.sizes, dtype="<i8").data).hexdigest()
        return repr((self.seed, sizes, self.task.layout.size))

    def _decide(self, context: Context, chains: Sequence[Chain]) -> None:
        self._engine.need_room(context.work, chains)  # inline's, which is least
        ways = self._measured(context, chains)
        self._fits = True
        best = min(ways, key=lambda way: way.price)
        self.choose({"name": best.name, **best.settings})
        others = "; ".join(f"{way} {way.seconds:.3g} s" for way in ways if way is not best)
        self._explanation = f"{best}: about {best.seconds:.3g} s a round" + (f" ({others})" if others else "")
        if best.shared:
            instead = best.alone
            seconds = next(way.seconds for way in ways if (way.name, way.settings) == (instead.name, instead.settings))
            self._trial = Trial(best, instead, seconds / sum(costs(chains, self.sizes)), [])

    def _review(self, trial: Trial) -> None:
        """They were only reckoned with; if they turn out slower, the same bits can be had without them. Whether they
        were, or the machine is slower than when it was measured, a few rounds without them tell."""
        if len(trial.without) == CONTROL:
            self._trial = None
            if min(trial.without) > min(trial.rounds[1:]):
                self.choose({"name": trial.way.name, **trial.way.settings})
                self._explanation = f"{trial.way}: faster than without {trial.way.hands}, though slower than expected"
            else:
                self._explanation = f"{trial.instead}: {trial.way.hands} turned out slower"
        elif len(trial.rounds) == TRIAL and not trial.alone_now:
            if min(trial.rounds[1:]) <= trial.alone:  # in the first one they had to start
                self._trial = None
                return
            self._trial = replace(trial, alone_now=True)
            self.choose({"name": trial.instead.name, **trial.instead.settings})
            self._explanation = f"{trial.instead}: {trial.way.hands} seem slower"

    def _measured(self, context: Context, chains: Sequence[Chain]) -> list[Way]:
        """Every way that is possible here, with the time the round would take."""
        cost, hands = costs(chains, self.sizes), min(cores(), len(chains))
        memories = self._engine.memories()[1]
        simulation = Simulation(self.federation, self.task, self.seed, computing=self._computing)
        sample = Sample(simulation, context, chains, memories)
        alone = sample.one_by_one(threads=1)
        ways = [Way("inline", {"threads": 1}, alone * sum(cost))]
        if self._asked:
            return ways + self._elsewhere(sample, context, chains, alone)
        if cores() > 1:
            each = sample.one_by_one(threads=cores(), hopeless=HOPELESS * alone)
            ways.append(Way("inline", {"threads": cores()}, each * sum(cost)))
        hindrance = unsendable(sample.simulation, context) if hands > 1 else ""
        if hindrance:
            LOG.warning("workers are not used: %s", hindrance)
            hands = 1
        if hands > 1:
            ways.append(Way("pool", {"workers": hands}, alone * makespan(cost, hands) * TRANSPORT))
        ways += self._stacked(sample, context, chains, hands)
        if found_native() and self.task.native:
            simulation = Simulation(self.federation, self.task, self.seed, native=True)
            sample, how = Sample(simulation, context, chains, memories), {"native": True}
            alone = sample.one_by_one(threads=1)
            ways.append(Way("inline", {"threads": 1, **how}, alone * sum(cost)))
            if hands > 1:
                ways.append(Way("pool", {"workers": hands, **how}, alone * makespan(cost, hands) * TRANSPORT))
            ways += self._in_threads(sample, context, chains, alone)
        return ways

    def _in_threads(self, sample: Sample, context: Context, chains: Sequence[Chain], alone: float) -> Iterator[Way]:
        """Visits outside the interpreter, made ready together, by one thread and by one for each core; `alone` is what
        an example takes where they are made one by one."""
        cost, hands = costs(chains, self.sizes), min(cores(), len(chains))
        known = self.task.trains_natively and context.work.stacks(self.task.natively)
        if len(chains) == 1 or not known or alone * makespan(cost, hands) > LONG:
            return
        rows = min(rows_of(self.task, self.device, native=True), len(chains))
        each, waiting = sample.together(min(rows, MEASURED)), WAITING * sum(len(chain.clients) for chain in chains)
        if hands > 1 and not sample.in_threads(hands):
            hands = 1
        for threads in sorted({1, hands}):
            seconds = each * makespan(cost, threads) + (waiting if threads > 1 else 0)
            yield Way("stacked", {"rows": rows, "threads": threads, "native": True}, seconds)

    def _stacked(self, sample: Sample, context: Context, chains: Sequence[Chain], hands: int) -> Iterator[Way]:
        """Chains that advance together, in as large stacks as fit, and in one for each core."""
        # On a processor, what is not written out is no quicker in stacks, and takes long to measure.
        if len(chains) == 1 or not (self.task.written and context.work.stacks(self.task)):
            return
        cost, most = costs(chains, self.sizes), rows_of(self.task, self.device)
        for rows in sorted({min(most, len(chains)), max(min(most, -(-len(chains) // hands)), 2)}):
            parts = [sum(cost[number] for number in numbers) for numbers in Stacks(chains, self.sizes, rows).all]
            each = sample.together(rows)
            yield Way("stacked", {"rows": rows, "workers": 1}, each * sum(cost))
            if min(hands, len(parts)) > 1:
                seconds = each * makespan(parts, hands) * TRANSPORT
                yield Way("stacked", {"rows": rows, "workers": hands}, seconds)

    def _elsewhere(self, sample: Sample, context: Context, chains: Sequence[Chain], alone: float) -> list[Way]:
        """The ways besides inline on another device, or in another precision: what runs on the processor's cores alone
        is not among them."""
        cost, here = costs(chains, self.sizes), self.device.type == "cpu"
        hands = min(cores() if here else len(every(str(self._asked["device"]))), len(chains))
        ways = []
        if hands > 1 and not unsendable(sample.simulation, context):
            with left_out("workers"):  # which have examples of their own, besides those of the sample
                self._engine.need_room(context.work, chains, copies=2)
                ways.append(Way("pool", {"workers": hands}, alone * makespan(cost, hands) * TRANSPORT))
        known = self.task.written or not here
        if len(chains) > 1 and self._computing.plain and known and context.work.stacks(self.task):
            rows = min(rows_of(self.task, self.device), len(chains))
            with left_out("stacks"):
                self._engine.need_room(context.work, chains, rows=rows)
                ways.append(Way("stacked", {"rows": rows, "workers": 1}, sample.together(rows) * sum(cost)))
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


@contextmanager
def left_out(what: str) -> Iterator[None]:
    """Inside a way is measured; one that finds no room on the device, or fails there, is left to others."""
    try:
        yield
    except (BadInput, RunFailed) as error:
        LOG.warning("%s are not used: %s", what, error)


def unsendable(simulation: Simulation, context: Context) -> str:
    """Why there can be no workers; empty if there can."""
    try:
        pack_whole(simulation)
        pack(context.work)
    except CannotBeSent as error:
        return str(error)
    return ""


def makespan(costs: Sequence[int], workers: int) -> int:
    """What the busiest of the workers has to do, if the longest go first."""
    loads = [0] * workers
    for cost in sorted(costs, reverse=True):
        loads[loads.index(min(loads))] += cost
    return max(loads)
