"""Whether runs worked alike: curves by round say little where one run does five times as much in a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fedrelay.report import measures
from fedrelay.runs.folder import Run

APART = 1.1
"""Runs differ if one has so many times what another has; random draws alone make less of a difference."""
MANY = 8
"""Of more runs than this only two are named."""


def notes(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """What to know of runs that differ in visits or examples a round, or, if each was tested once, in all; nothing if
    they are alike. References, which have no clients, are left out."""
    racing = [
        (name, run) for name, run in zip(names, runs, strict=True) if not measures.is_reference(run) and run.rounds
    ]
    once = bool(racing) and measures.once([run for _, run in racing])
    found = []
    for what, of in WORK.items():
        figures = {name: of(run) * (len(run.rounds) if once else 1) for name, run in racing}
        if figures and max(figures.values()) > APART * min(figures.values()):
            how = what if once else f"{what} a round"
            end = "they did not have the same work" if once else "a round of one is not a round of another"
            found.append(f"The runs differ in {how} ({listed(figures)}), so {end}.")
    return found


def listed(figures: Mapping[str, float]) -> str:
    """What every run has; of many, what the least and the most have."""
    shown = [f"{name} {measures.count(figure)}" for name, figure in figures.items()]
    if len(shown) <= MANY:
        return ", ".join(shown)
    ordered = sorted(figures.items(), key=lambda item: item[1])
    least, most = (f"{name} {measures.count(figure)}" for name, figure in (ordered[0], ordered[-1]))
    return f"from {least} to {most}"


def visits(run: Run) -> float:
    """Of clients, a round."""
    return sum(log.visits for log in run.rounds) / len(run.rounds)


def examples(run: Run) -> float:
    """Trained on, a round."""
    return sum(log.examples for log in run.rounds) / len(run.rounds)


WORK: dict[str, Callable[[Run], float]] = {"visits": visits, "examples": examples}
