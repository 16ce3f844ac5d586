"""What would run, and roughly how much of it, before anything does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from fedrelay import config
from fedrelay.report.measures import count
from fedrelay.runs.folder import SUMMARY
from fedrelay.studies import compare
from fedrelay.studies.reproduce.carry_out import Planned
from fedrelay.studies.reproduce.item import Item
from fedrelay.studies.reproduce.study import Tables, seeds_of

FEW, SHARE = 20, 0.2
"""Who takes part where nothing is said: everybody of so few clients, else this share."""


@dataclass(frozen=True)
class Rough:
    """A row that would run: its seeds, how many of them are done, its rounds, and the visits to clients of one seed."""

    panel: str
    row: str
    seeds: int
    done: int = 0
    rounds: int | None = None
    visits: int | None = None


def rough(item: Item, planned: Sequence[Planned]) -> list[Rough]:
    """Every row of these panels; what is not a run has no rounds to count."""
    of = runs_of if item.study in ("compare", "features", "recovery") else others_of
    return [row for one in planned for row in of(item, one)]


def runs_of(item: Item, one: Planned) -> list[Rough]:
    jobs, _ = compare.plan(one.wanted, one.folder)
    found = []
    for name in dict.fromkeys(job.name for job in jobs):
        mine = [job for job in jobs if job.name == name]
        rounds = mine[0].tables.get("rounds", config.NUMBERS["rounds"])
        done = sum((job.folder / SUMMARY).is_file() for job in mine)
        found.append(Rough(one.name, item.called(name), len(mine), done, rounds, visits_of(mine[0].tables, rounds)))
    return found


def others_of(item: Item, one: Planned) -> list[Rough]:
    return [Rough(one.name, item.called(row), len(seeds_of(one.wanted))) for row in one.rows]


def visits_of(tables: Tables, rounds: int) -> int | None:
    """Clients that train in all rounds, one after another or side by side; None where their number is in the data."""
    algorithm, clients = config.section_of(tables, "algorithm"), config.section_of(tables, "data").get("clients")
    if algorithm.get("name") == "centralized":
        return rounds
    if not isinstance(clients, int):
        return None
    fraction = algorithm.get("fraction", 1.0 if clients <= FEW else SHARE)
    return rounds * max(round(fraction * clients), 1) if isinstance(fraction, int | float) else None


def table(found: Sequence[Rough]) -> Table:
    """For the terminal, with the sum of all visits that are not done."""
    result = Table("panel", "row", title_justify="left")
    for title in ("seeds", "done", "rounds", "visits"):
        result.add_column(title, justify="right")
    for row in found:
        all_ = None if row.visits is None else row.seeds * row.visits
        cells = (row.panel, row.row, str(row.seeds), str(row.done), count(row.rounds), count(all_))
        result.add_row(*map(Text, cells))
    left = sum((row.seeds - row.done) * (row.visits or 0) for row in found)
    result.caption = f"About {count(left)} visits to clients are to be done."
    return result
