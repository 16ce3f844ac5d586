"""The papers' numbers are in the papers: read back from their texts, where those are at hand."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from fedrelay.reproduce import library

TEXTS = Path(__file__).parents[3] / "shared" / "papers"
NUMBER = re.compile(r"(?<![\d.,])\d+(?:[.,]\d+)*")


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
