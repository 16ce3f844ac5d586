"""How long things take at the clients, in simulated seconds: speed, bandwidth and availability of every one of them.

Times are drawn from the run's seed and labels, so that a run with a virtual clock is as repeatable as one without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedrelay import seeds
from fedrelay.errors import BadInput, within
from fedrelay.runs.costs import EVERYTHING_LEAVES, Home, size_of
from fedrelay.types import Hearing, Outcome, State

Floats = NDArray[np.float64]
BYTES = 1e6 / 8  # per second, of one Mbit/s


class Distribution(Protocol):
    """One positive number per client. A frozen dataclass."""

    def __call__(self, clients: int, rng: np.random.Generator, /) -> Floats: ...


@dataclass(frozen=True)
class Same:
    """The same `value` for every client."""

    value: float

    def __post_init__(self) -> None:
        within("value", self.value, above=0)

    def __call__(self, clients: int, rng: np.random.Generator, /) -> Floats:
        return np.full(clients, self.value)


@dataclass(frozen=True)
class Between:
    """Uniform between `low` and `high`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        within("low", self.low, above=0)
        within("high", self.high, least=self.low)

    def __call__(self, clients: int, rng: np.random.Generator, /) -> Floats:
        return rng.uniform(self.low, self.high, clients)


@dataclass(frozen=True)
class LogNormal:
    """Around a `median`; a client `sigma` deviations from it is exp(sigma) times as fast or slow. As devices are."""

    median: float
    sigma: float = 0.5

    def __post_init__(self) -> None:
        within("median", self.median, above=0)
        within("sigma", self.sigma, least=0)

    def __call__(self, clients: int, rng: np.random.Generator, /) -> Floats:
        return self.median * np.exp(self.sigma * rng.standard_normal(clients))


@dataclass(frozen=True)
class Tiers:
    """A few kinds of client: each has one of the `values`, drawn with these `shares` (default: equal ones)."""

    values: tuple[float, ...]
    shares: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        positive("values", self.values)
        if self.shares is not None:
            positive("shares", self.shares)
            if len(self.shares) != len(self.values):
                raise BadInput(f"there are {len(self.values)} values but {len(self.shares)} shares: give one to each")

    def __call__(self, clients: int, rng: np.random.Generator, /) -> Floats:
        shares = None if self.shares is None else np.array(self.shares) / sum(self.shares)
        return rng.choice(np.array(self.values), clients, p=shares)


@dataclass(frozen=True)
class Given:
    """The `values` as they are, one for every client, in order."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        positive("values", self.values)

    def __call__(self, clients: int, rng: np.random.Generator, /) -> Floats:
        if len(self.values) != clients:
            raise BadInput(f"{len(self.values)} values are given for {clients} clients: give one for each")
        return np.array(self.values)


DISTRIBUTIONS: dict[str, type[Distribution]] = {
    "constant": Same,
    "uniform": Between,
    "lognormal": LogNormal,
    "tiers": Tiers,
    "given": Given,
}


@dataclass(frozen=True)
class Latency:
    """What clients are like: `speed` in examples per second, `bandwidth` in Mbit/s (both ways), `availability` as the
    share of the time they can be reached.

    A client that cannot be reached when its turn comes is waited for: `away` seconds on average, exponentially. Every
    message takes `delay` seconds besides its transfer. The server is never the bottleneck.
    """

    speed: Distribution = LogNormal(200.0, 0.5)
    bandwidth: Distribution = LogNormal(20.0, 0.5)
    availability: Distribution = Same(1.0)
    away: float = 60.0
    delay: float = 0.0

    def __post_init__(self) -> None:
        within("away", self.away, least=0)
        within("delay", self.delay, least=0)

    def draw(self, clients: int, seed: int) -> Pace:
        """The clients of a run: the same ones for the same seed."""
        return _drawn(self, clients, seed)


@dataclass(frozen=True)
class Load:
    """What a hop moves, in bytes: the baton and what the server tells everybody. `relayed`: the server stands between
    two clients of a chain, so that what one sends goes up first and down afterwards. `serverless`: there is none."""

    baton: int
    shared: int = 0
    relayed: bool = False
    serverless: bool = False
    home: Home = field(default_factory=dict)


@dataclass(frozen=True)
class Pace:
    """Every client's speed (examples per second), bandwidth (bytes per second) and availability."""

    speed: Floats
    bandwidth: Floats
    availability: Floats
    latency: Latency
    seed: int

    def timed(
        self,
        outcomes: Sequence[Outcome],
        state: State,
        *,
        relayed: bool,
        serverless: bool = False,
        home: Home = EVERYTHING_LEAVES,
    ) -> list[Outcome]:
        """The outcomes of the round after `state`, with the time they finished; all its chains began when it did."""
        baton, shared = size_of(state.batons[0].params, home), size_of(state.shared, home)
        load = Load(baton, shared, relayed, serverless, home)
        finished = [self.finish(outcome, load, state.round + 1, state.clock) for outcome in outcomes]
        return [replace(outcome, finished_at=at) for outcome, at in zip(outcomes, finished, strict=True)]

    def finish(self, outcome: Outcome, load: Load, round: int, began: float = 0.0) -> float:
        """When a chain finished that began at `began`. A client that was dropped costs the message that reached it."""
        lost = {drop.hop for drop in outcome.dropped}
        reports = iter(outcome.reports)
        now, holder = began, outcome.chain.holder if load.serverless else None
        for hop, client in enumerate(outcome.chain.clients):
            alone = holder is None and load.serverless  # it makes the initial model itself
            now += self.absence(client, round, hop) + self.passing(client if alone else holder, client, load)
            if hop not in lost:
                report = next(reports)
                told = size_of(report.uplink, load.home)
                now += float(report.examples / self.speed[client] + told / self.bandwidth[client])
                holder = client
        return now if holder is None or load.serverless else now + self.transfer(load.baton, holder)

    def exchanging(self, steps: Sequence[Hearing], baton: int) -> float:
        """How long clients take to send one another their models, step by step. A client sends to (and hears from) one
        neighbour after another; a step ends when everybody is done."""
        return sum(
            max(sum(self.transfer(baton, self.slower(client, other)) for other in heard) for client, heard in each)
            for each in (tuple(enumerate(hearing)) for hearing in steps)
        )

    def described(self, outcome: Outcome, sent: int) -> float:
        """How long a client took to be described, with so many bytes sent to it."""
        (client,) = outcome.chain.clients
        answer = sum(float(report.examples / self.speed[client]) for report in outcome.reports)
        answer += sum(self.transfer(size_of(report.uplink), client) for report in outcome.reports)
        return self.absence(client, 0, 0) + (self.transfer(sent, client) if sent else 0.0) + answer

    def absence(self, client: int, round: int, hop: int) -> float:
        """How long one waits for the client."""
        if self.availability[client] >= 1:
            return 0.0
        draw = seeds.rng(self.seed, "absence", round, hop, client)
        here = draw.random() < self.availability[client]
        return 0.0 if here else float(draw.exponential(self.latency.away))

    def passing(self, holder: int | None, client: int, load: Load) -> float:
        """How long the baton takes to the client, from the server (None) or from whoever holds it."""
        shared = float(load.shared / self.bandwidth[client])
        if holder == client:
            return shared
        if holder is None:
            return shared + self.transfer(load.baton, client)
        if load.relayed:
            return shared + self.transfer(load.baton, holder) + self.transfer(load.baton, client)
        return shared + self.transfer(load.baton, self.slower(holder, client))

    def slower(self, one: int, other: int) -> int:
        """The client of the two that sets the pace between them."""
        return one if self.bandwidth[one] < self.bandwidth[other] else other

    def transfer(self, size: int, client: int) -> float:
        """How long a message of this size takes from or to a client."""
        return float(size / self.bandwidth[client]) + self.latency.delay


@lru_cache(maxsize=8)
def _drawn(latency: Latency, clients: int, seed: int) -> Pace:
    def numbers(name: str, distribution: Distribution) -> Floats:
        try:
            return distribution(clients, seeds.rng(seed, "latency", name))
        except BadInput as error:
            raise BadInput(f"latency.{name}: {error}") from error

    availability = numbers("availability", latency.availability)
    if (availability > 1).any():
        raise BadInput(f"availability is a share of the time: at most 1, not {availability.max():g}")
    speed, bandwidth = numbers("speed", latency.speed), numbers("bandwidth", latency.bandwidth) * BYTES
    return Pace(speed, bandwidth, availability, latency, seed)


def positive(name: str, values: Sequence[float]) -> None:
    """Refuse an empty list, or one with a number that is not positive."""
    if not values:
        raise BadInput(f"{name} must not be empty")
    for value in values:
        within(f"every one of {name}", value, above=0)
