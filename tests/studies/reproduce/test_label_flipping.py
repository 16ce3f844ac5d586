"""Table 6 of the FedSeq journal, as far as its damaged print can be read: the item says what the text has."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean

import pytest

from fedrelay.studies.reproduce import library, scales

TEXT = Path(__file__).parents[4] / "shared" / "papers" / "fedseq-journal-2024.txt"
PANELS = ("CIFAR10, FedSeq", "CIFAR10, FedAvg", "CIFAR100, FedSeq", "CIFAR100, FedAvg")
SHARES = ("0.1, 0.1", "0.1, 0.5", "0.3, 0.1", "0.3, 0.5", "0.5, 0.1", "0.5, 0.5")


@pytest.fixture(scope="module")
def item():
    return library.item_of("fedseq-journal/table6")


@pytest.fixture(scope="module")
def lines():
    """The four accuracies of every printed line."""
    if not TEXT.is_file():
        pytest.skip("the text of this paper is not at hand")
    table = TEXT.read_text(encoding="utf-8").partition("TABLE 6.")[2].partition("Reference accuracy")[0]
    found = [re.findall(r"(?<![-\d.])\d\d\.\d\d(?!\d)", line) for line in table.splitlines()]
    return [[float(number) for number in numbers] for numbers in found if len(numbers) == 4]


def test_the_first_lines_of_the_table_are_those_of_the_item(item, lines):
    assert len(lines) == 26
    for column, panel in enumerate(PANELS):
        rows = {row: cells["accuracy"].value for row, cells in item.printed[panel].items() if row != "Reference"}
        assert list(rows.values()) == [line[column] for line in lines[:6]]
        assert [row.partition(", ")[2] for row in rows] == list(SHARES)


def test_the_mean_drops_that_the_notes_tell_are_those_of_all_lines(item, lines):
    drops = []
    for column, panel in enumerate(PANELS):
        reference = item.printed[panel]["Reference"]["accuracy"].value
        drops.append(f"{reference - fmean(line[column] for line in lines):.2f}")
    assert drops == ["0.53", "1.10", "0.65", "0.33"]
    (note,) = [note for note in item.notes if "mean drop" in note]
    assert re.findall(r"\d\.\d\d", note) == drops


def test_the_papers_table_has_twenty_four_attacks_beside_a_reference(item):
    for panel in PANELS:
        rows = scales.rows_of(item, "paper", panel)
        assert len(rows) == 25
        assert {row.partition(", ")[2] for row in rows if row != "Reference"} == set(SHARES)
