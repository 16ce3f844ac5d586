"""Runs that are the same but for their seed: drawn as one line with a band, and tested against others seed by seed."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedrelay.report import measures
from fedrelay.report.against import name_of
from fedrelay.runs.folder import Run

BESIDES = {"seed": None, "engine": None, "checkpoint": None, "data": ("split",), "evaluate": ("target",)}
"""What may differ between seeds: the split, and a target that is the reference's result, go with the seed."""

NUMBERED = re.compile(r"[-_./ ]*(seed|s)?[-_ ]*\d+$")


@dataclass(frozen=True)
class Repeat:
    """One method over its seeds: what it is called, and the places of its runs."""

    name: str
    places: tuple[int, ...]


def repeats(runs: Sequence[Run], names: Sequence[str]) -> list[Repeat]:
    """All runs, those together that differ in the seed only; of two with the same seed the second is alone."""
    found: list[tuple[str, list[int], set[int | None]]] = []
    for place, run in enumerate(runs):
        kind, seed = kind_of(run), measures.planned_seed(run)
        fitting = next((one for one in found if one[0] == kind and seed not in one[2]), None)
        if fitting is None or seed is None:
            found.append((kind, [place], {seed}))
        else:
            fitting[1].append(place)
            fitting[2].add(seed)
    called = [
        called_of([runs[place] for place in places], [names[place] for place in places]) for _, places, _ in found
    ]
    unlike = [name if called.count(name) == 1 else names[one[1][0]] for name, one in zip(called, found, strict=True)]
    return [Repeat(name, tuple(places)) for name, (_, places, _) in zip(unlike, found, strict=True)]


def kind_of(run: Run) -> str:
    """The settings without what may differ between seeds, and, where folders are seed-0, seed-1 …, the run's name."""
    kept: dict[str, Any] = {}
    for key, value in run.config.items():
        leave = BESIDES.get(key, ())
        if leave is None:
            continue
        kept[key] = {k: v for k, v in value.items() if k not in leave} if isinstance(value, Mapping) else value
    folder = run.folder.resolve()
    return json.dumps([kept, str(folder.parent) if name_of(run) != folder.name else ""], sort_keys=True, default=str)


def called_of(runs: Sequence[Run], names: Sequence[str]) -> str:
    """What they are called together: the name that all have, or the first one's without the number of its seed."""
    if len(names) == 1:
        return name_of(runs[0]) if name_of(runs[0]) != runs[0].folder.resolve().name else names[0]
    if len(same := {name_of(run) for run in runs}) == 1:
        return same.pop().encode(errors="replace").decode()
    return NUMBERED.sub("", names[0]) or f"{names[0]} …"


def best_over_seeds(runs: Sequence[Run], together: Sequence[Repeat]) -> str | None:
    """Who is best over all seeds, in a sentence; None where there are not two methods with several seeds."""
    by = measures.headline(runs)
    values: dict[str, list[float]] = {}
    for one in together:
        mine = [runs[place] for place in one.places if not measures.is_reference(runs[place])]
        found = [value for run in mine if (value := measures.mean_of_last(run, by)) is not None]
        if len(found) > 1:
            values[one.name] = found
    if len(values) < 2:
        return None
    best = max(values, key=lambda name: by.merit(statistics.fmean(values[name])))
    told = " ± ".join(measures.figure(of(values[best]), by) for of in (statistics.fmean, statistics.stdev))
    judged = "validation " if measures.judged_on(runs) == "Validation" else ""
    return f"Over {len(values[best])} seeds {best} has the best {judged}{measures.words(by.name)}: {told}."
