"""Whether runs worked alike: curves by round say little where one run does five times as much in a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedrelay.report import measures
from fedrelay.runs.folder import Run

APART = 1.1
"""Runs differ if one has so many times what another has; random draws alone make less of a difference."""


def notes(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """What to know of runs that differ in visits or examples a round; nothing if they are alike. References, which have
    no clients, are left out."""
    racing = [
        (name, run) for name, run in zip(names, runs, strict=True) if not measures.is_reference(run) and run.rounds
    ]
    found = []
    for what, of in WORK.items():
        figures = {name: of(run) for name, run in racing}
        if figures and max(figures.values()) > APART * min(figures.values()):
            listed = ", ".join(f"{name} {measures.count(figure)}" for name, figure in figures.items())
            found.append(f"The runs differ in {what} a round ({listed}), so a round of one is not a round of another.")
    return found


def visits(run: Run) -> float:
    """Of clients, a round."""
    return sum(log.visits for log in run.rounds) / len(run.rounds)


def examples(run: Run) -> float:
    """Trained on, a round."""
    return sum(log.examples for log in run.rounds) / len(run.rounds)


WORK: dict[str, Callable[[Run], float]] = {"visits": visits, "examples": examples}
