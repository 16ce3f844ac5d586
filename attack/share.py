"""What an attack is told and what it tells: which trials it is to make, and what became of each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Verdict:
    """What became of a trial; without a problem it held. One verdict may stand for many trials that all held."""

    label: str
    problem: str = ""
    trials: int = 1
    figures: dict[str, float] | None = None
    """What was measured, for the row's remark."""
    of: int | None = None
    """How many trials there are in all, where an attack can make all there are."""


@dataclass(frozen=True)
class Share:
    """The part of a kind's trials that one process makes: every `lanes`-th from number `lane`, `done` of them before.

    Everything random in trial n comes from the seed, the kind and n, so a trial can be made again alone.
    """

    kind: str
    folder: Path
    """Empty, and nobody else's."""
    seed: int
    wanted: int
    lane: int = 0
    lanes: int = 1
    done: int = 0
    deadline: float = float("inf")
    """Of time.monotonic(); an attack that makes many trials at once must end them by then."""
    guided: bool = True
    """Whether a fuzzer may be used that takes long to start."""

    def numbers(self) -> Iterator[int]:
        """The trials that are still to be made."""
        yield from range(self.lane + self.done * self.lanes, self.wanted, self.lanes)

    def rng(self, *labels: object) -> random.Random:
        return random.Random(" ".join(map(str, (self.seed, self.kind, *labels))))

    @property
    def left(self) -> float:
        """Seconds."""
        return max(self.deadline - time.monotonic(), 0.0)


Attack = Callable[[Share], Iterator[Verdict]]


@dataclass(frozen=True)
class Kind:
    """A row of the table."""

    name: str
    what: str
    """In the page."""
    attack: Attack
    wanted: int
    """Trials in an hour; an attack that has no more ends before."""
    slice: int
    """Trials in the slice that every change is tried with."""
    minutes: float
    """Of one core, in an hour of two."""
    split: bool = True
    """Whether two processes can share the trials."""
