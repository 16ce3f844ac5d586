"""The papers' numbers are in the papers: read back from their texts, where those are at hand."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from fedrelay.studies.reproduce import library
from fedrelay.studies.reproduce.item import Item

TEXTS = Path(__file__).parents[4] / "shared" / "papers"
NUMBER = re.compile(r"(?<![\d.,])\d+(?:[.,]\d+)*")
ENTRY = re.compile(rf"{NUMBER.pattern}|(?<!\w)[-–](?!\w)")
"""A number, or the dash of what was not reached."""


@dataclass(frozen=True)
class Layout:
    """How a table is printed: a line begins with its row, and has the columns of so many panels one after another."""

    panels: int
    columns: tuple[str, ...] = ("accuracy",)
    apart: tuple[str, ...] = ()
    """Rows that have no such line."""


SPEEDS = tuple(name for share in (70, 80, 90) for name in (f"rounds to {share} %", f"speed-up at {share} %"))
LAYOUTS = {
    "fedelmy/table1": Layout(8),
    "fedelmy/table4": Layout(5),
    "fedelmy/table5": Layout(4),
    "fedelmy/table6": Layout(14),
    "fedelmy/table7": Layout(4),
    "fedelmy/table8": Layout(6),
    "fedseq/table1": Layout(3, apart=("centralised",)),
    "fedseq/table2": Layout(3, SPEEDS),
    "fedseq/table3": Layout(3, apart=("random",)),
}


def values(text: str) -> set[float]:
    """Every number as it may be meant: 1,81 is a fraction, 10,000 may be either."""
    found = set()
    for token in NUMBER.findall(text):
        for form in (token.replace(",", "."), token.replace(",", "")):
            if form.count(".") <= 1:
                found.add(float(form))
    return found


@cache
def lines_of(name: str) -> tuple[str, ...]:
    if not name or not (TEXTS / name).is_file():
        pytest.skip(f"the text {name or 'of this paper'} is not at hand")
    return tuple(line for line in (TEXTS / name).read_text(encoding="utf-8").splitlines() if line.strip())


def near(lines: tuple[str, ...], row: str, panel: str) -> str:
    """The lines that name the row, or the panel of a table that is turned, each with the next two; all of them, if none
    names the row."""
    of_row, of_panel = naming(lines, row), naming(lines, panel.partition(",")[0])
    return "\n".join(of_row + of_panel if of_row else lines)


def naming(lines: tuple[str, ...], name: str) -> list[str]:
    """The lines with this name in them as a word, each with the next two, into which a sentence may go on."""
    word = re.compile(rf"(?<![\w+]){re.escape(name)}(?!\w)")
    found = [number for number, line in enumerate(lines) if name and word.search(line)]
    return ["\n".join(lines[number : number + 3]) for number in found]


def entries(text: str) -> list[float | None]:
    """Numbers and dashes in their order; a comma is that of a fraction."""
    return [None if entry in "-–" else float(entry.replace(",", ".")) for entry in ENTRY.findall(text)]


def out_of_order(item: Item, layout: Layout, lines: tuple[str, ...]) -> list[str]:
    """The rows that no line of the text has with exactly these numbers in this order."""
    panels = [panel for panel in (*item.panels, *item.means) if panel in item.printed]
    found = []
    for start in range(0, len(panels), layout.panels):
        block = panels[start : start + layout.panels]
        for row in dict.fromkeys(row for panel in block for row in item.printed[panel] if row not in layout.apart):
            there = [entries(line.removeprefix(row)) for line in lines if line.startswith(f"{row} ")]
            if wanted(item, row, block, layout.columns) not in there:
                found.append(f"{row}: {block[0]}")
    return found


def wanted(item: Item, row: str, panels: list[str], columns: tuple[str, ...]) -> list[float | None]:
    """What a line of this row has: the columns of panel after panel, each value with its deviation, if that is said."""
    found: list[float | None] = []
    for panel in panels:
        for column in columns:
            one = item.printed[panel].get(row, {}).get(column)
            found.append(None if one is None else one.value)
            found += [] if one is None or one.deviation is None else [one.deviation]
    return found


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_numbers_of_a_line_belong_to_panels_and_columns_in_the_order_of_print(name):
    item = library.item_of(name)
    assert out_of_order(item, LAYOUTS[name], lines_of(item.paper.text)) == []


@pytest.mark.parametrize("name", LAYOUTS)
def test_two_panels_that_are_exchanged_are_found(name):
    item = library.item_of(name)
    one, other = list(item.printed)[:2]
    exchanged = replace(item, printed={**item.printed, one: item.printed[other], other: item.printed[one]})
    assert out_of_order(exchanged, LAYOUTS[name], lines_of(item.paper.text))


@pytest.mark.parametrize("name", library.names())
def test_every_number_of_an_item_is_in_the_text_of_its_paper(name):
    (item,) = library.wanted(name)
    lines = lines_of(item.paper.text)
    for panel, rows in item.printed.items():
        for row, columns in rows.items():
            there = values(near(lines, row, panel))
            for column, printed in columns.items():
                for value in () if printed.text else (printed.value, printed.deviation):  # formulas are no numbers
                    assert value is None or value in there, f"{panel}, {row}, {column}: {value} is not in the text"


def test_numbers_are_read_as_papers_print_them():
    assert values("FedAvg 4036 (1x) 7649 (1,81x) - 10,000 71.41") == {4036, 1, 7649, 1.81, 10.0, 10_000, 181, 71.41}
