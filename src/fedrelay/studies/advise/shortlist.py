"""The short-list: methods to try, with their settings and learning rates, and what each may cost beside FedAvg."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedrelay.plans.growth import Exponential, Growth, Logarithmic
from fedrelay.studies.advise.evidence import MANY_STEPS, Speed, scaled, speed_of
from fedrelay.studies.advise.facts import PUBLISHED, By, Facts
from fedrelay.studies.advise.round_costs import Shape, mean_length, messages, seconds
from fedrelay.studies.advise.rules import FEW_TO_GROUP, Rule

SERVER_STEPS = (0.003, 0.01, 0.03, 0.1)
"""FedAdam's learning rates at the server: its authors' grid around the usual 0.01 (Reddi et al. 2021)."""
CLIP = 10.0
FURTHER = 3.0
"""How much smaller still a chain's learning rate begins where visits are long."""


@dataclass(frozen=True)
class Range:
    """From the least to the most."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The geometric mean: as many times above the least as below the most."""
        return math.sqrt(self.low * self.high)

    def times(self, factor: float) -> Range:
        return Range(self.low * factor, self.high * factor)


@dataclass(frozen=True)
class Candidate:
    """A method to try: its settings, the setting whose values are tried, and its cost as shares of FedAvg's."""

    method: str
    algorithm: Mapping[str, Any]
    local: Mapping[str, Any]
    key: str
    values: tuple[float, ...]
    speed: Speed
    shape: Shape
    """Of a round, averaged over the rounds it may need."""
    cost: Mapping[By, Range]
    """Of reaching the target: rounds, traffic (by price) and time."""
    rules: tuple[str, ...] = field(default=())
    """Those that brought it here."""


def shortlist(facts: Facts, rules: Sequence[Rule]) -> list[Candidate]:
    """What the rules that hold would try, the likely cheapest first; FedAvg is always among them."""
    barred = {method for rule in rules for method in rule.without}
    named: dict[str, list[str]] = {}
    for rule in rules:
        for method in rule.tries:
            if method not in barred:
                named.setdefault(method, []).append(rule.name)
    if facts.clients > 1 and not any(method in ONE_PASS for method in named):
        named.setdefault("fedavg", [])
    found = [replace(candidate(method, facts), rules=tuple(why)) for method, why in named.items()]
    return sorted(found, key=lambda one: one.cost[facts.by].middle)


ONE_PASS = ("fedelmy", "sequential", "centralized")
"""Methods that are not measured against FedAvg's rounds."""
PASSES = 3
"""More passes of one chain through everybody bring hardly more (FedELMY 2024)."""
POOL = 5
"""Models that every client of FedELMY trains, as its recipe has it."""


def candidate(method: str, facts: Facts) -> Candidate:
    """A method with the settings that the rules give it here."""
    if method in ONE_PASS:
        return one_pass(method, facts)
    shape = shape_of(method, facts)
    speed = speed_of(method, facts)
    length = shape.length if speed.method == "fedseq" else PUBLISHED  # of others it was published as it is
    rounds = Range(1 / scaled(speed.high, length), 1 / scaled(speed.low, length))
    cost = beside_fedavg(shape, facts, rounds)
    algorithm = {"name": method, **settings_of(method, facts)}
    local = {"clip": CLIP} if "feddyn" in method else {}
    if method == "fedadam":
        return Candidate(method, algorithm, local, "algorithm.server_lr", SERVER_STEPS, speed, shape, cost)
    return Candidate(method, algorithm, local, "local.lr", rates_of(facts, shape.length), speed, shape, cost)


def one_pass(method: str, facts: Facts) -> Candidate:
    """One chain through everybody, once to three times; or all examples in one place, for all rounds."""
    alone = method == "centralized"
    passes = Range(1, 1) if alone else Range(1, PASSES).times(1 / facts.rounds)
    rates = around(facts.lr) if alone else around(0.001)  # the other two are usually of Adam
    free = Speed(method, "one pass", lambda facts: True, 1.0, 1.0, "not measured against FedAvg's rounds")
    shape = Shape(facts.clients, serverless=True, work=POOL if method == "fedelmy" else 1)
    cost = beside_fedavg(shape, facts, passes)
    return Candidate(method, {"name": method}, {}, "local.lr", rates, free, shape, cost)


def beside_fedavg(shape: Shape, facts: Facts, rounds: Range) -> Mapping[By, Range]:
    """Shares of FedAvg's cost, if rounds look like this and so many of FedAvg's are needed."""
    plain = Shape()
    shares: dict[By, float] = {
        "rounds": 1.0,
        "traffic": share(priced(shape, facts), priced(plain, facts)),
        "time": seconds(shape, visits_of(shape, facts), facts.line) / seconds(plain, facts.taking_part, facts.line),
    }
    return {by: rounds.times(ratio) for by, ratio in shares.items()}


def share(cost: float, of: float) -> float:
    """How many times as much; where FedAvg's messages are free, what costs anything costs far more."""
    return cost / of if of else 1.0 if not cost else math.inf


def visits_of(shape: Shape, facts: Facts) -> float:
    """Of a round: clients that are drawn, or all where one chain goes through everybody."""
    return shape.length if shape.serverless else float(facts.taking_part)


def shape_of(method: str, facts: Facts) -> Shape:
    """How a round of this method looks, averaged over the rounds it may need."""
    grown: dict[str, Growth] = {
        "fedgsp": Logarithmic(beta=10, alpha=2.0),
        "fedseq2par": Exponential(beta=5, alpha=0.015),
    }
    if method in grown:
        rounds = max(round(facts.rounds / speed_of(method, facts).high), 1)
        length = min(mean_length(grown[method], facts.clients, rounds), facts.taking_part)
        return Shape(max(length, 1.0), relayed=method == "fedgsp")
    if method.startswith(("fedseq", "fedasyncseq")):
        return Shape(facts.chain)
    if method == "fedcyclic":
        return Shape(facts.taking_part)
    return Shape(extra=2 if method == "scaffold" else 0)


def priced(shape: Shape, facts: Facts) -> float:
    """What the messages of a round cost, in model sizes times the price of a byte."""
    counts = messages(shape, visits_of(shape, facts))
    return sum(count * price for count, price in zip(counts, facts.prices, strict=True))


def settings_of(method: str, facts: Facts) -> dict[str, Any]:
    """The settings that the rules give a method: who takes part, how long chains are, how groups are made."""
    found: dict[str, Any] = {"fraction": facts.fraction}
    if method.startswith(("fedseq", "fedasyncseq")) and not method.startswith("fedseq2par"):
        found["max_clients"] = facts.chain
    grouped = facts.clients <= FEW_TO_GROUP and facts.classes is not None and facts.level != "alike"
    if grouped and method.startswith(("fedseq", "fedasyncseq")) and facts.chain < facts.clients:
        found["traits"] = "histogram"
    return found


def rates_of(facts: Facts, length: float) -> tuple[float, ...]:
    """Three learning rates: that of clients that train alone divided by the length of the chain, less where visits are
    long; a third and three times it."""
    rate = facts.lr / length
    return around(rate / FURTHER if length > 1 and facts.steps > MANY_STEPS else rate)


def around(rate: float) -> tuple[float, ...]:
    """A third, the rate, three times it; to two digits."""
    return tuple(float(f"{rate * factor:.2g}") for factor in (1 / 3, 1, 3))
