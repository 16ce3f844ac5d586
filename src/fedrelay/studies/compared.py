"""The tables of a comparison: one row a run, mean and deviation over its seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from rich import box
from rich.table import Table
from rich.text import Text

from fedrelay.report.measures import words as in_words
from fedrelay.runs.log import Summary
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


def millions(value: float) -> str:
    return f"{value / 1e6:.1f}"


@dataclass(frozen=True)
class Reached:
    """What it took to reach a share of the target: in words, by shares in a summary, and how it is written."""

    words: str
    by_share: Callable[[Summary], Mapping[str, float | None]]
    unit: Callable[[float], str]


TIME = Reached("simulated s to", lambda summary: summary.time_to, "{:.1f}".format)
REACHED = (
    Reached("rounds to", lambda summary: summary.rounds_to, "{:.0f}".format),
    Reached("MB to", lambda summary: summary.traffic_to, millions),
    TIME,
)


def cells_of(row: Row, shares: Sequence[str], reached: Sequence[Reached]) -> list[str]:
    """One line of the table."""
    one_digit, figure = "{:.1f}".format, headline(row.summaries).text
    return [
        row.name,
        row.over_seeds(lambda summary: summary.mean, figure) if row.summaries else "failed",
        row.over_seeds(lambda summary: summary.best, figure),
        *(row.over_seeds(partial(at_share, one, share), one.unit) for one in reached for share in shares),
        row.over_seeds(lambda summary: summary.messages["total"], "{:.0f}".format),
        row.over_seeds(lambda summary: summary.bytes["total"], millions),
        row.over_seeds(lambda summary: summary.jump, figure),
        row.over_seeds(lambda summary: summary.classes, one_digit),
        row.over_seeds(lambda summary: summary.seconds, one_digit),
    ]


def headline(summaries: Sequence[Summary]) -> Headline:
    """What these runs are judged by; accuracy if there are none."""
    return next((Headline(one.metric, one.higher_is_better, one.share) for one in summaries), Headline())


def at_share(reached: Reached, share: str, summary: Summary) -> float | None:
    return reached.by_share(summary).get(share)


def headings(rows: Sequence[Row]) -> tuple[list[str], list[str], list[Reached]]:
    """The columns, the shares of the target that were asked for, and what is told of them."""
    shares = list(dict.fromkeys(share for row in rows for summary in row.summaries for share in summary.rounds_to))
    timed = any(summary.simulated_seconds is not None for row in rows for summary in row.summaries)
    reached = [one for one in REACHED if timed or one is not TIME]
    words = [f"{one.words} {float(share):.0%}" for one in reached for share in shares]
    names = dict.fromkeys(summary.metric for row in rows for summary in row.summaries) or ["accuracy"]
    figure = " or ".join(map(in_words, names))
    columns = ["run", figure, "best", *words, "messages", "MB", "jump", "classes a round", "seconds"]
    return columns, shares, reached


def table(rows: Sequence[Row]) -> Table:
    """For the terminal, where there is less room."""
    columns, shares, reached = headings(rows)
    left_out = ("best", "messages", "MB to", "simulated s to", "jump", "classes")
    shown = [number for number, column in enumerate(columns) if not column.startswith(left_out)]
    result = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for number in shown:
        result.add_column(columns[number], justify="left" if number == 0 else "right", no_wrap=number == 0)
    for row in rows:
        cells = cells_of(row, shares, reached)
        result.add_row(*(Text(cells[number]) for number in shown))
    return result


def markdown(rows: Sequence[Row], title: str, remarks: Sequence[str] = ()) -> str:
    """For documents."""
    columns, shares, reached = headings(rows)
    text = markdown_table(columns, [cells_of(row, shares, reached) for row in rows], words=1)
    said = [*remarks, *(f"{row.name} failed: {reason}" for row in rows for reason in row.failed)]
    return f"# {title}\n\n{text}\n" + ("\n" + "".join(f"- {line}\n" for line in said) if said else "")
