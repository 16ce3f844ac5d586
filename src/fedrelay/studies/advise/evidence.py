"""How many times fewer rounds than FedAvg a method needs: what was published, from tuned to untuned.

The lower end is with learning rates tuned for both sides, the upper with one learning rate for all, which is low for
FedAvg. Where nobody has tuned both, the lower end is 1: no gain. None of it was measured on your data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from fedrelay.studies.advise.facts import PUBLISHED, Facts

TUNED = "Li & Lyu 2023 (54 published runs, recomputed: tuned rates, chains of 10)"
FEDSEQ = "FedSeq 2022, Table II (one rate for all; CIFAR-10)"
FEDGSP = "FedGSP 2022 (FEMNIST, rounds to 80 %)"
ALIKE = (
    "nobody measured it; lower end: at leading order never more rounds (theorem of Li & Lyu 2023); upper end our "
    "assumption: no more than tuned chains save at two classes per client"
)


@dataclass(frozen=True)
class Speed:
    """A row: under a condition a method needs so many times fewer rounds than FedAvg."""

    method: str
    when: str
    holds: Callable[[Facts], bool]
    low: float
    high: float
    source: str


def always(facts: Facts) -> bool:
    return True


def one_class(facts: Facts) -> bool:
    return facts.level == "one class"


def not_alike(facts: Facts) -> bool:
    return facts.level != "alike"


def worn(facts: Facts) -> bool:
    """Many local steps of a small model on unlike clients: where chains forget."""
    return facts.small and facts.steps > MANY_STEPS and facts.level != "alike"


MANY_STEPS = 20
"""Local steps from which on chains of small models lost in the published tables."""

SPEEDS: tuple[Speed, ...] = (
    Speed("fedavg", "always", always, 1.0, 1.0, "by definition"),
    Speed("fedseq", "a small model and more than 20 local steps", worn, 0.2, 1.75, f"{TUNED}: 0.2 to 3.1, median 1.75"),
    Speed("fedseq", "one class per client", one_class, 2.45, 7.7, f"{TUNED}; {FEDSEQ}, alpha 0"),
    Speed("fedseq", "unlike clients", not_alike, 1.65, 6.1, f"{TUNED}; {FEDSEQ}, alpha 0.5"),
    Speed("fedseq", "clients alike", always, 1.0, 1.65, ALIKE),
    Speed("fedseq+feddyn", "one class per client", one_class, 1.0, 13.2, f"{FEDSEQ}, alpha 0; nobody tuned both"),
    Speed("fedseq+feddyn", "otherwise", always, 1.0, 9.3, f"{FEDSEQ}, alpha 0.5; nobody tuned both"),
    Speed("feddyn", "one class per client", one_class, 1.0, 8.0, f"{FEDSEQ}, alpha 0; nobody tuned both"),
    Speed("feddyn", "otherwise", always, 1.0, 5.9, f"{FEDSEQ}, alpha 0.5; nobody tuned both"),
    Speed("scaffold", "one class per client", one_class, 1.0, 2.0, f"{FEDSEQ}, alpha 0; nobody tuned both"),
    Speed("scaffold", "otherwise", always, 1.0, 1.0, f"{FEDSEQ}, alpha 0.5"),
    Speed("fedadam", "always", always, 1.0, 5.4, f"{FEDGSP}; nobody tuned both"),
    Speed("fedgsp", "always", always, 1.0, 13.8, f"{FEDGSP}; nobody tuned both"),
)
"""The first row of a method whose condition holds counts."""

LIKE = {"fedseq2par": "fedseq", "fedasyncseq": "fedseq", "fedcyclic": "fedseq", "fedavgm": "fedadam"}
"""Methods of which no rounds to a target were published, and whose they are taken to be."""


def speed_of(method: str, facts: Facts) -> Speed:
    """The row that counts for this method here; one that is taken from another method says so."""
    wanted = LIKE.get(method, method)
    row = next(row for row in SPEEDS if row.method == wanted and row.holds(facts))
    return row if wanted == method else replace(row, source=f"{borrowed(wanted)}: {row.source}")


def borrowed(method: str) -> str:
    """That a number is another method's."""
    return f"none published; taken as {method}'s"


def scaled(speed: float, length: float) -> float:
    """For chains shorter than the published ones: a chain of one is FedAvg, and between the two it is a power."""
    return math.pow(speed, min(math.log(max(length, 1.0)) / math.log(PUBLISHED), 1.0))
