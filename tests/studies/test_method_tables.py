"""docs/choose-a-method.md says what the code does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from fedrelay import BadInput
from fedrelay.algorithms import ALGORITHMS
from fedrelay.studies import method_tables as guide

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "choose-a-method.md"


@pytest.fixture(scope="module")
def methods() -> dict[str, list[str]]:
    """The cells of every method."""
    rows = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in guide.methods().splitlines()[2:]]
    return {row[0].strip("`"): row for row in rows}


def test_the_tables_of_the_document_are_up_to_date():
    text = DOCUMENT.read_text()
    assert guide.renewed(text) == text, "run: python -m fedrelay.studies.method_tables docs/choose-a-method.md"


def test_every_method_has_a_whole_row(methods):
    assert list(methods) == list(ALGORITHMS)
    for name, row in methods.items():
        assert len(row) == 8
        idea, when = row[1], row[2]
        assert len(idea) > 20, f"{name}: the docstring's first paragraph is the idea"
        assert when != "–", f"{name}: a paragraph of the docstring that begins with When says when to use it"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_recipe_explains_all_its_parameters_and_links_its_paper(name):
    recipe = ALGORITHMS[name].recipe
    paragraphs = inspect.getdoc(recipe).split("\n\n")
    args = next((part.splitlines()[1:] for part in paragraphs if part.startswith("Args:\n")), [])
    explained = [re.fullmatch(r" {4}(\w+(?:, \w+)*): \S.*", line) for line in args if not line.startswith(" " * 8)]
    assert all(explained), "every line of Args is `name: text` or `name, name: text`, or goes on further to the right"
    parameters = inspect.signature(recipe).parameters
    assert [one for found in explained for one in found[1].split(", ")] == list(parameters)
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in parameters.values())
    link = r"\[[^\]]+ (19|20)\d\d\]\(https://(arxiv\.org/abs/|doi\.org/|openreview\.net/forum\?id=)[\w./()-]+\)"
    assert re.match(rf"Reference: {link}", paragraphs[-1])


def test_the_traffic_is_that_of_the_papers(methods):
    # (FedSeq journal 2024, Table 3) per visit: FedAvg 2, SCAFFOLD 4, FedSeq with groups of 10 (1 + 1 + 9) / 10
    assert {name: methods[name][4] for name in ("fedavg", "scaffold", "feddyn", "fedseq")} == {
        "fedavg": "1",
        "scaffold": "2",
        "feddyn": "1",
        "fedseq": "0.55",
    }


def test_what_a_method_needs_is_found_by_trying(methods):
    assert methods["fedavg"][5] == "nothing"
    assert methods["fedmmd"][5] == methods["fedfusion"][5] == "a model with body and head"
    assert methods["scaffold"][3] == "control (a model's size)"
    assert "clients that reach one another" in methods["fedseq"][5]


def test_a_document_without_a_place_for_a_table_is_refused():
    with pytest.raises(BadInput, match="no place for methods"):
        guide.renewed("# nothing here")
