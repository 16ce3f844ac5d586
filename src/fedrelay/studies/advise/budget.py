"""How much a race may cost, and how many rounds that gives everybody."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Literal

from fedrelay.config.experiment import Experiment
from fedrelay.errors import BadInput, within
from fedrelay.runs.loop import train

Unit = Literal["rounds", "visits", "minutes"]
UNITS: dict[str, Unit] = {
    "": "rounds",
    "r": "rounds",
    "round": "rounds",
    "rounds": "rounds",
    "visit": "visits",
    "visits": "visits",
    "m": "minutes",
    "min": "minutes",
    "minute": "minutes",
    "minutes": "minutes",
}
LEAST = 8
"""Rounds, so that a quarter of them is two."""
TRIED = 2
"""Rounds that are timed where the budget is in minutes."""


@dataclass(frozen=True)
class Budget:
    """Of a whole race: so many rounds of all trials together, visits to clients, or minutes."""

    amount: float = 600.0
    unit: Unit = "rounds"

    def __post_init__(self) -> None:
        within("the budget", self.amount, above=0)

    @classmethod
    def of(cls, text: str) -> Budget:
        """From the command line: 600, 600rounds, 12000visits or 10minutes."""
        number = text.strip().rstrip("abcdefghijklmnopqrstuvwxyz ")
        unit = text.strip()[len(number) :].strip()
        try:
            return cls(float(number), UNITS[unit])
        except (ValueError, KeyError) as error:
            if isinstance(error, BadInput):
                raise
            raise BadInput(
                f"--budget {text:.60}: expected rounds, visits or minutes, such as 600rounds, 12000visits or 10minutes"
            ) from None

    def plan(self, experiment: Experiment, taking_part: int, *, trials: int, methods: int) -> Plan:
        """How long the longest runs may be if so many trials begin, with one value more of every method if it can be.

        A budget in which no run comes to a few rounds is refused.
        """
        price = 1.0
        if self.unit == "visits":
            price = float(taking_part)
        elif self.unit == "minutes":
            price = seconds_a_round(experiment) / 60
        most = math.floor(self.amount / price)
        for count in (trials + methods, trials):
            if (rounds := longest(most, count)) >= LEAST:
                return Plan(rounds, most)
        least = f"{math.ceil(price * work(trials, LEAST) * 100) / 100:g}{self.unit}"
        raise BadInput(
            f"--budget {self.amount:g}{self.unit} is too small for a race of {trials} trials of {methods} methods, the "
            f"last of which shall come to {LEAST} rounds: --budget {least} would do, or `fedrelay tune` with one method"
        )


@dataclass(frozen=True)
class Plan:
    """Rounds of the longest runs, and the most of all trials together."""

    rounds: int
    most: int


def longest(most: int, trials: int) -> int:
    """Rounds of the longest runs, so that those of all trials together are at most so many."""
    rounds = 4 * most // max(trials, 1)
    while rounds and work(trials, rounds) > most:
        rounds -= 1
    return rounds


def heats(rounds: int) -> tuple[int, int]:
    """After how many rounds trials are left behind: a quarter, and half of them."""
    return max(round(rounds / 4), 1), max(round(rounds / 2), 1)


def work(trials: int, rounds: int) -> int:
    """The rounds of a whole race, at most: all trials to a quarter, half of them to a half, half of these to the end;
    each time FedAvg's best may go on besides."""
    quarter, half = heats(rounds)
    second = min((trials + 1) // 2 + 1, trials)
    last = min((second + 1) // 2 + 1, second)
    return trials * quarter + second * (half - quarter) + last * (rounds - half)


def seconds_a_round(experiment: Experiment) -> float:
    """How long a round takes here, by the clock on the wall: the last of a few."""
    took = float("inf")
    began = time.perf_counter()
    for _ in train(experiment.algorithm, experiment.engine, rounds=TRIED):
        took, began = time.perf_counter() - began, time.perf_counter()
    return max(took, 1e-4)
