"""The tables of a comparison: one row a run, mean and deviation over its seeds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from rich import box
from rich.table import Table
from rich.text import Text

from fedrelay.report.against import Against, times
from fedrelay.report.measures import REFERENCE
from fedrelay.report.measures import words as in_words
from fedrelay.runs.log import Summary
from fedrelay.runs.measures import parallelism_ratio, speed_up
from fedrelay.studies.markdown import markdown_table
from fedrelay.studies.over_seeds import mean_and_deviation
from fedrelay.tasks import Headline

Figure: TypeAlias = Callable[[Summary], float | None]
"""A number of a summary, if it has it."""


@dataclass(frozen=True)
class Row:
    """One run over all its seeds; `failed` says why some of them have no result."""

    name: str
    summaries: tuple[Summary, ...]
    failed: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()

    def over_seeds(self, figure: Figure, unit: Callable[[float], str]) -> str:
        """Mean ± standard deviation over seeds; nothing if some seed never got there."""
        values = [value for summary in self.summaries if (value := figure(summary)) is not None]
        if not values or len(values) < len(self.summaries):
            return "–"
        return mean_and_deviation(values, unit)

    def mean(self, figure: Figure) -> float | None:
        """Over seeds; None if some seed does not have it."""
        values = [value for summary in self.summaries if (value := figure(summary)) is not None]
        return statistics.fmean(values) if values and len(values) == len(self.summaries) else None

    @property
    def method(self) -> str:
        return next((summary.algorithm for summary in self.summaries), "")


def millions(value: float) -> str:
    return f"{value / 1e6:.1f}"


@dataclass(frozen=True)
class Reached:
    """What it took to reach a share of the target: in words, by shares in a summary, and how it is written."""

    words: str
    by_share: Callable[[Summary], Mapping[str, float | None]]
    unit: Callable[[float], str]


TIME = Reached("simulated s to", lambda summary: summary.time_to, "{:.1f}".format)
ROUNDS = Reached("rounds to", lambda summary: summary.rounds_to, "{:.0f}".format)
REACHED = (
    ROUNDS,
    Reached("MB to", lambda summary: summary.traffic_to, millions),
    TIME,
)


@dataclass(frozen=True)
class Bases:
    """The rows that others are measured against, where there are any."""

    speed: Row | None = None
    parallelism: Row | None = None

    @classmethod
    def of(cls, rows: Sequence[Row], against: Against = Against()) -> Bases:
        """Those that are named, or FedAvg and FedSeq where they are among the rows."""
        found, by_name = against.found({row.name: row.method for row in rows}), {row.name: row for row in rows}
        return cls(by_name.get(found.speed or ""), by_name.get(found.parallelism or ""))

    def speed_up(self, row: Row, share: str) -> float | None:
        """By the mean rounds over seeds; None as well if some seed of either never got there (FedSeq 2022, Table
        II)."""
        if self.speed is None or row.method == REFERENCE:
            return None
        taken, base = (one.mean(lambda summary: summary.rounds_to.get(share)) for one in (row, self.speed))
        return speed_up(taken, base)

    def parallelism_ratio(self, row: Row) -> float | None:
        """By the mean number of groups over rounds and seeds (FedSeq journal 2024, Table 5)."""
        if self.parallelism is None or row.method == REFERENCE:
            return None
        groups, base = (one.mean(lambda summary: summary.parallelism) for one in (row, self.parallelism))
        return parallelism_ratio(groups, base)

    def beside(self, cell: str, row: Row, one: Reached, share: str) -> str:
        """What is written of a share: rounds with their speed-up, as `594 (6.79×)`."""
        if self.speed is None or one is not ROUNDS or row.method == REFERENCE:
            return cell
        return f"{cell} ({times(self.speed_up(row, share))})"


def cells_of(
    row: Row,
    shares: Sequence[str],
    reached: Sequence[Reached],
    bases: Bases = Bases(),
    attacked: Sequence[str] = (),
) -> list[str]:
    """One line of the table."""
    one_digit, figure = "{:.1f}".format, headline(row.summaries).text
    groups = row.over_seeds(lambda summary: summary.parallelism, "{:.4g}".format)
    ratio = bases.parallelism_ratio(row)
    return [
        row.name,
        row.over_seeds(lambda summary: summary.mean, figure) if row.summaries else "failed",
        *(row.over_seeds(partial(told_of_attack, name), Headline().text) for name in attacked),
        row.over_seeds(lambda summary: summary.best, figure),
        row.over_seeds(lambda summary: summary.mean_loss, "{:.3f}".format),
        *(
            bases.beside(row.over_seeds(partial(at_share, one, share), one.unit), row, one, share)
            for one in reached
            for share in shares
        ),
        row.over_seeds(lambda summary: summary.messages["total"], "{:.0f}".format),
        row.over_seeds(lambda summary: summary.bytes["total"], millions),
        row.over_seeds(lambda summary: summary.jump, figure),
        row.over_seeds(lambda summary: summary.classes, one_digit),
        groups if ratio is None else f"{groups} ({times(ratio)})",
        row.over_seeds(lambda summary: summary.seconds, one_digit),
    ]


def told_of_attack(name: str, summary: Summary) -> float | None:
    return summary.attacked.get(name)


def attacked_of(rows: Sequence[Row]) -> list[str]:
    """What tells whether attacks work, where somebody attacks."""
    names = dict.fromkeys(name for row in rows for summary in row.summaries for name in summary.attacked)
    return [name for name in names if name != "visits"]


def headline(summaries: Sequence[Summary]) -> Headline:
    """What these runs are judged by; accuracy if there are none."""
    return next((Headline(one.metric, one.higher_is_better, one.share) for one in summaries), Headline())


def at_share(reached: Reached, share: str, summary: Summary) -> float | None:
    return reached.by_share(summary).get(share)


def shares_of(rows: Sequence[Row]) -> list[str]:
    """The shares of the target that were asked for."""
    return list(dict.fromkeys(share for row in rows for summary in row.summaries for share in summary.rounds_to))


def headings(rows: Sequence[Row]) -> tuple[list[str], list[str], list[Reached]]:
    """The columns, the shares of the target that were asked for, and what is told of them."""
    shares = shares_of(rows)
    timed = any(summary.simulated_seconds is not None for row in rows for summary in row.summaries)
    reached = [one for one in REACHED if timed or one is not TIME]
    words = [f"{one.words} {float(share):.0%}" for one in reached for share in shares]
    names = dict.fromkeys(summary.metric for row in rows for summary in row.summaries) or ["accuracy"]
    figure = " or ".join(map(in_words, names))
    attacked = map(in_words, attacked_of(rows))
    columns = [
        "run",
        figure,
        *attacked,
        "best",
        "loss",
        *words,
        "messages",
        "MB",
        "jump",
        "classes a round",
        "groups",
        "seconds",
    ]
    return columns, shares, reached


def table(rows: Sequence[Row]) -> Table:
    """For the terminal, where there is less room."""
    columns, shares, reached = headings(rows)
    left_out = ("best", "loss", "messages", "MB to", "simulated s to", "jump", "classes", "groups")
    shown = [number for number, column in enumerate(columns) if not column.startswith(left_out)]
    result = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for number in shown:
        result.add_column(columns[number], justify="left" if number == 0 else "right", no_wrap=number == 0)
    for row in rows:
        cells = cells_of(row, shares, reached, attacked=attacked_of(rows))
        result.add_row(*(Text(cells[number]) for number in shown))
    return result


def markdown(rows: Sequence[Row], title: str, remarks: Sequence[str] = (), against: Against = Against()) -> str:
    """For documents."""
    columns, shares, reached = headings(rows)
    bases = Bases.of(rows, against)
    text = markdown_table(columns, [cells_of(row, shares, reached, bases, attacked_of(rows)) for row in rows], words=1)
    said = [*measured_against(bases, shares), *remarks]
    said += [f"{row.name} failed: {reason}" for row in rows for reason in row.failed]
    parts = [f"# {title}\n\n{text}\n", "".join(f"- {line}\n" for line in said), estimated(rows, shares)]
    return "\n".join(part for part in parts if part)


def measured_against(bases: Bases, shares: Sequence[str]) -> list[str]:
    """What the numbers in brackets are."""
    found = []
    if bases.speed is not None and shares:
        found.append(f"In brackets after rounds: how many times as fast as {bases.speed.name}.")
    if bases.parallelism is not None:
        found.append(f"In brackets after groups: how many times as many as {bases.parallelism.name} has.")
    return found


ESTIMATED = (
    Reached("computing s to", lambda summary: summary.estimates_to.get("computing_seconds", {}), "{:.3g}".format),
    Reached(
        "communication s to", lambda summary: summary.estimates_to.get("communication_seconds", {}), "{:.3g}".format
    ),
    Reached("MB to", lambda summary: summary.estimates_to.get("traffic_bytes", {}), millions),
)
"""T_comp, T_comm and D_comm."""


def estimated(rows: Sequence[Row], shares: Sequence[str]) -> str:
    """A table of time and traffic to each share of the target by FedGSP's formulas (2022, Fig. 6); empty where no run
    got there, or there are no formulas for it."""
    known = [row for row in rows if row.method != REFERENCE]
    lines = [
        [row.name, *(row.over_seeds(partial(at_share, one, share), one.unit) for one in ESTIMATED for share in shares)]
        for row in known
    ]
    if all(cell == "–" for line in lines for cell in line[1:]):
        return ""
    columns = ["run", *(f"{one.words} {float(share):.0%}" for one in ESTIMATED for share in shares)]
    return f"By FedGSP's formulas, every visit by way of the server:\n\n{markdown_table(columns, lines, words=1)}\n"
