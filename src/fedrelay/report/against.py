"""Which run the others are measured against: how many times as fast as FedAvg, how many times as parallel as FedSeq."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedrelay.errors import BadInput
from fedrelay.report.measures import NONE, REFERENCE, algorithm, planned_seed
from fedrelay.runs.folder import Run

SEED = re.compile(r"seed-\d+")
"""The folder of one seed of a run, inside the folder that has the run's name."""


@dataclass(frozen=True)
class Against:
    """The names of the runs that others are measured against; None is left to `found`."""

    speed: str | None = None
    """By its rounds to a share of the target."""
    parallelism: str | None = None
    """By its number of groups."""

    def found(self, methods: Mapping[str, str]) -> Against:
        """With what was not said, from the methods of all runs by name; a name that no run has is refused."""
        for name in (self.speed, self.parallelism):
            if name is not None and name not in methods:
                raise BadInput(f"there is no run {name!r} to measure the others against: there is {', '.join(methods)}")
        return Against(self.speed or usual(methods, "fedavg"), self.parallelism or usual(methods, "fedseq"))


def usual(methods: Mapping[str, str], method: str) -> str | None:
    """The run that is called like the method, or else the only one that has it; None if there is no such run, if there
    are several, or if there is nobody else but a reference."""
    called = [name for name in methods if name.casefold() == method]
    having = called or [name for name, of in methods.items() if of == method]
    others = [name for name, of in methods.items() if of != REFERENCE and name not in having]
    return having[0] if len(having) == 1 and others else None


def times(value: float | None) -> str:
    """A speed-up, or a parallelism, as people read it."""
    return NONE if value is None else f"{value:.2f}×"


# --- runs of a page


def name_of(run: Run) -> str:
    """What a run is called whatever its seed."""
    folder = run.folder.resolve()
    return folder.parent.name if SEED.fullmatch(folder.name) else folder.name


def methods_of(runs: Iterable[Run]) -> dict[str, str]:
    """The methods of runs by name."""
    return {name_of(run): algorithm(run) for run in runs}


def base_for(run: Run, runs: Sequence[Run], name: str | None) -> Run | None:
    """Whom this run is measured against: the run of that name with the same seed, if there is one, or else the first
    of that name."""
    having = [one for one in runs if name_of(one) == name]
    same = [one for one in having if planned_seed(one) == planned_seed(run)]
    return next(iter(same or having), None)
