"""One table or figure of a paper: what was run for it, what the paper prints, and what it concludes.

An item is a TOML file. `[experiment]` is the paper's own set-up; `[panels.NAME]` says what differs in each part of the
table, `[scales.small]` and `[scales.smoke]` what is smaller where there is less time; `[[columns]]` are measured as the
paper's, `[paper.PANEL.ROW]` are its numbers, and `[[claims]]` what it concludes from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fedrelay.studies.reproduce.measures import Measure
from fedrelay.studies.reproduce.studies import STUDIES
from fedrelay.studies.reproduce.study import Study

Tables = Mapping[str, Any]
UNITS = {
    "": 1.0,
    "%": 100.0,
    "x": 1.0,
    "thousandths": 1000.0,
    "kB": 1e-3,
    "MB": 1e-6,
    "GB": 1e-9,
    "s": 1.0,
    "min": 1 / 60,
    "h": 1 / 3600,
}
"""By what our values are multiplied to be in the unit of a column."""
SCALES = ("smoke", "small", "paper")
Order = Literal["rising", "falling", "highest", "lowest", "close", "least", "most"]
ORDERS: tuple[Order, ...] = ("rising", "falling", "highest", "lowest", "close", "least", "most")


@dataclass(frozen=True)
class Paper:
    """Where items come from."""

    name: str
    title: str
    authors: str = ""
    year: int = 0
    short: str = ""
    link: str = ""
    text: str = ""
    """The file with its text, for whoever has it."""


@dataclass(frozen=True)
class Column:
    """A column of the table: how it is measured, and in which unit it is written."""

    name: str
    measure: Measure
    unit: str = ""
    digits: int | None = None

    @property
    def factor(self) -> float:
        return UNITS[self.unit]


@dataclass(frozen=True)
class Printed:
    """A number as the paper prints it; None is what it never reached."""

    value: float | None
    deviation: float | None = None
    text: str = ""
    """What is printed, where that is a formula."""


@dataclass(frozen=True)
class Place:
    """A row of a panel."""

    panel: str
    row: str


@dataclass(frozen=True)
class Claim:
    """What the paper concludes: how values of a column stand to one another, or to a number."""

    text: str
    column: str
    order: Order
    places: tuple[Place, ...]
    bounds: tuple[float, ...] = ()
    """For `least` and `most`: one for each place."""
    within: float = 0.0
    """For `close`: how far apart they may be, in the column's unit."""
    by: float = 0.0
    """For `highest` and `lowest`: by how much more than this the first is ahead of all others."""


@dataclass(frozen=True)
class Scale:
    """What is smaller than in the paper, and why."""

    why: str = ""
    panels: tuple[str, ...] | None = None
    rows: tuple[str, ...] | None = None
    change: Tables = field(default_factory=dict)
    change_in: Mapping[str, Tables] = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    """A table or figure of a paper."""

    name: str
    paper: Paper
    title: str
    where: str
    study: str
    experiment: Tables
    columns: tuple[Column, ...]
    panels: Mapping[str, Tables]
    """What differs in each; an item without any has one without a name."""
    means: Mapping[str, tuple[str, ...]]
    """Panels that are the mean of others."""
    names: Mapping[str, str]
    """What the paper calls rows of ours."""
    scales: Mapping[str, Scale]
    printed: Mapping[str, Mapping[str, Mapping[str, Printed]]]
    claims: tuple[Claim, ...]
    notes: tuple[str, ...] = ()
    needs: str = ""
    pictures: tuple[str, ...] = ()
    like: str = ""
    """The item whose runs these are, if they are another's."""
    rows: tuple[str, ...] | None = None
    """Those that are shown of them, if not all."""
    asked: str = ""
    """What it is asked for by, if not by its name: the file of a user's own."""

    @property
    def kind(self) -> Study:
        return STUDIES[self.study]

    def called(self, row: str) -> str:
        """A row by the paper's name."""
        return self.names.get(row, row)
