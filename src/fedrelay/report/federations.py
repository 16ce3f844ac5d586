"""Which runs are of the same federation: others are shown apart, for their figures cannot be compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedrelay.report import measures
from fedrelay.runs.folder import Run

HANDLING = ("split", "augment", "exemplars", "validation")
"""Of [data]: what is done with the examples of clients, not whose they are; the split goes with the seed."""


@dataclass
class Federation:
    """The runs of one federation, by their places among all, and its data in words."""

    words: str
    data: str
    places: list[int] = field(default_factory=list)
    splits: dict[int | None, str] = field(default_factory=dict)

    def fits(self, run: Run) -> bool:
        """Runs of one seed have the same split, or they are of other examples."""
        seed, split = measures.planned_seed(run), split_of(run)
        return self.data == data_of(run) and (split is None or self.splits.get(seed, split) == split)

    def add(self, place: int, run: Run) -> None:
        self.places.append(place)
        split = split_of(run)
        if split is not None:
            self.splits.setdefault(measures.planned_seed(run), split)


def apart(runs: Sequence[Run]) -> list[Federation]:
    """The federations of these runs, in the order in which they come. A reference that was made in Python, whose data
    is pooled, goes with the others if they are all of one."""
    found: list[Federation] = []
    for place, run in enumerate(runs):
        fitting = next((one for one in found if one.fits(run)), None)
        if fitting is None:
            fitting = Federation(in_words(run), data_of(run))
            found.append(fitting)
        fitting.add(place, run)
    racing = [one for one in found if not all(measures.is_reference(runs[place]) for place in one.places)]
    if len(racing) == 1 and len(found) > 1 and all("name" not in section(runs[place]) for place in range(len(runs))):
        racing[0].places = list(range(len(runs)))
        return racing
    return found


def section(run: Run) -> Mapping[str, Any]:
    data = run.config.get("data")
    return data if isinstance(data, Mapping) else {}


def data_of(run: Run) -> str:
    """What makes it another federation: its data, and the examples that figures are of."""
    own = {key: value for key, value in section(run).items() if key not in HANDLING}
    return json.dumps([own, measures.judged_on([run])], sort_keys=True, default=str)


def split_of(run: Run) -> str | None:
    """The fingerprint of who has which examples."""
    split = section(run).get("split")
    return split if isinstance(split, str) else None


def in_words(run: Run) -> str:
    """Such as: digits, shards (per_client 2), 30 clients."""
    data = section(run)
    said = [str(data["name"])] if "name" in data else []
    partition = data.get("partition")
    if isinstance(partition, Mapping):
        more = ", ".join(f"{key} {value}" for key, value in partition.items() if key != "name")
        said.append(f"{partition.get('name', 'partition')}{f' ({more})' if more else ''}")
    elif isinstance(partition, str):
        said.append(partition)
    clients = data.get("clients")
    if isinstance(clients, int):
        said.append("1 client" if clients == 1 else f"{measures.count(clients)} clients")
    on = measures.judged_on([run])
    if on != "Test":
        said.append(f"by {on.lower()} examples")
    return ", ".join(said) or "data that is not described"
