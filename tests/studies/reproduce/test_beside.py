"""Ours beside the paper's: spread, differences and claims, with numbers reckoned by hand."""

from __future__ import annotations

import math

import pytest
from example_item import tables

from fedrelay.studies.reproduce import beside, markdown
from fedrelay.studies.reproduce.beside import Cell
from fedrelay.studies.reproduce.finished import Finished, Reading
from fedrelay.studies.reproduce.item import Claim, Paper, Place, Printed
from fedrelay.studies.reproduce.outcome import dumped, outcome_of, read
from fedrelay.studies.reproduce.reading import item_of


def claim(order, count=2, **more):
    return Claim("it is so", "c", order, tuple(Place("", str(n)) for n in range(count)), **more)


def test_two_numbers_differ_if_they_are_more_than_twice_their_spread_apart():
    # deviations 3 and 4 make 5, so the spread is 10
    assert Cell(ours=60, deviation=3, paper=50, paper_deviation=4).spread == 10
    assert Cell(ours=60, deviation=3, paper=50, paper_deviation=4).apart is False
    assert Cell(ours=60.1, deviation=3, paper=50, paper_deviation=4).apart is True
    # only one of them is known: twice that
    assert Cell(ours=60, deviation=5, paper=50).apart is False
    assert Cell(ours=39.9, deviation=5, paper=50).apart is True


def test_one_seed_has_no_spread():
    cell = beside.over_seeds([Reading(0.6)], 100, Printed(50))
    assert (cell.ours, cell.deviation, cell.spread, cell.apart) == (60, None, None, None)


def test_seeds_have_a_mean_and_a_deviation_in_the_unit_of_the_column():
    cell = beside.over_seeds([Reading(0.5), Reading(0.7)], 100, None)
    assert cell.ours == pytest.approx(60)
    assert cell.deviation == pytest.approx(math.sqrt(200))  # each is 10 from the mean, over n - 1 = 1
    assert cell.seeds == 2


def test_what_some_seed_did_not_reach_has_no_mean_but_a_bound():
    cell = beside.over_seeds([Reading(30), Reading(beyond=100)], 1, Printed(None))
    assert (cell.ours, cell.beyond, cell.never) == (None, 100, True)
    assert beside.ours_text(cell, "", None) == "not in 100"
    assert beside.paper_text(cell, "", None) == "never"


def test_reaching_what_the_paper_never_did_is_a_difference():
    assert Cell(ours=5, never=True).apart is True
    assert Cell(beyond=5, never=True).apart is None


@pytest.mark.parametrize(
    ("order", "cells", "verdict"),
    [
        ("rising", [Cell(ours=1), Cell(ours=2)], "held"),
        ("rising", [Cell(ours=2), Cell(ours=2)], "not held"),
        ("falling", [Cell(ours=2), Cell(ours=1)], "held"),
        ("falling", [Cell(ours=1), Cell(ours=2)], "not held"),
        ("rising", [Cell(ours=1), Cell()], "not tried"),
        # 5 rounds against more than 9; against more than 4 nothing is known
        ("rising", [Cell(ours=5), Cell(beyond=9)], "held"),
        ("rising", [Cell(ours=5), Cell(beyond=4)], "not tried"),
        ("rising", [Cell(beyond=9), Cell(ours=5)], "not held"),
        ("falling", [Cell(beyond=9), Cell(ours=5)], "held"),
        ("rising", [Cell(beyond=9), Cell(beyond=9)], "not tried"),
    ],
)
def test_an_order_is_held_where_every_step_is(order, cells, verdict):
    assert beside.verdict_of(claim(order), cells) == verdict


def test_one_wrong_step_is_enough_and_one_unknown_one_leaves_it_open():
    three = claim("rising", 3)
    assert beside.verdict_of(three, [Cell(ours=2), Cell(ours=1), Cell()]) == "not held"
    assert beside.verdict_of(three, [Cell(ours=1), Cell(ours=2), Cell()]) == "not tried"
    assert beside.verdict_of(three, [Cell(ours=1), Cell(ours=2), Cell(ours=3)]) == "held"


def test_close_means_within_and_bounds_mean_at_least_and_at_most():
    assert beside.verdict_of(claim("close", within=1.0), [Cell(ours=5), Cell(ours=6)]) == "held"
    assert beside.verdict_of(claim("close", within=0.9), [Cell(ours=5), Cell(ours=6)]) == "not held"
    assert beside.verdict_of(claim("least", 1, bounds=(6.0,)), [Cell(ours=6)]) == "held"
    assert beside.verdict_of(claim("most", 1, bounds=(6.0,)), [Cell(ours=7)]) == "not held"
    # not reached in 9 rounds: it took more than 6
    assert beside.verdict_of(claim("most", 1, bounds=(6.0,)), [Cell(beyond=9)]) == "not held"
    assert beside.verdict_of(claim("least", 1, bounds=(6.0,)), [Cell(beyond=9)]) == "held"
    assert beside.verdict_of(claim("most", 1, bounds=(60.0,)), [Cell(beyond=9)]) == "not tried"


def test_an_order_within_the_spread_is_called_unsure():
    near = [Cell(ours=10, deviation=3), Cell(ours=20, deviation=4)]
    far = [Cell(ours=10, deviation=3), Cell(ours=20.1, deviation=4)]
    assert beside.unsure(claim("rising"), near)
    assert not beside.unsure(claim("rising"), far)
    assert not beside.unsure(claim("rising"), [Cell(ours=10), Cell(ours=20)])  # one seed: nothing is known


# --- an item from figures to its document


def item_with_figures():
    content = tables(
        study="formulas",
        experiment={"clients": 10, "model": 1e6, "runs": {"A": {"method": "fedavg"}, "B": {"method": "dfedsam"}}},
        panels={"x": {}, "y": {}},
        means={"both": {"of": ["x", "y"]}},
        columns=[{"name": "value", "measure": "figure", "figure": "v", "digits": 1}],
        paper={"both": {"A": {"value": 4}}, "x": {"A": {"value": 2}}},
        claims=[{"text": "A is below B", "panel": "both", "column": "value", "rising": ["A", "B"]}],
    )
    content["scales"]["smoke"] = {}
    return item_of(content, "mine", Paper("", ""))


def found():
    return {
        "x": Finished(figures={"A": ({"v": 1.0}, {"v": 3.0}), "B": ({"v": 5.0}, {"v": 5.0})}),
        "y": Finished(figures={"A": ({"v": 3.0}, {"v": 5.0}), "B": ({"v": 7.0}, {"v": 9.0})}),
    }


def test_a_mean_of_panels_is_taken_seed_by_seed():
    outcome = outcome_of(item_with_figures(), "paper", found())
    cell = outcome.parts[2].cell("A", "value")
    # seeds have (1 + 3) / 2 = 2 and (3 + 5) / 2 = 4: mean 3, deviation √2
    assert (cell.ours, cell.paper) == (3, 4)
    assert cell.deviation == pytest.approx(math.sqrt(2))
    assert outcome.claims[0].verdict == "held"
    assert outcome.claims[0].ours == ("3.0 ± 1.4", "6.5 ± 0.7")
    assert outcome.claims[0].paper == ("4.0", "–")


def test_a_smoke_run_judges_nothing():
    assert outcome_of(item_with_figures(), "smoke", found()).claims[0].verdict == "not tried"


def test_the_document_has_ours_the_papers_and_the_difference():
    text = markdown.document(outcome_of(item_with_figures(), "paper", found()))
    assert "| row | value | paper | difference |" in text
    assert "| A | 2.0 ± 1.4 | 2.0 | +0.0 |" in text
    assert "| A | 3.0 ± 1.4 | 4.0 | −1.0 |" in text
    assert "| A is below B | held | value: A, B | 3.0 ± 1.4, 6.5 ± 0.7 | 4.0, – |" in text


def test_results_are_read_back_as_they_were_written(tmp_path):
    outcome = outcome_of(item_with_figures(), "paper", found(), left_out=["y is left out"], failed=["B: too large"])
    (tmp_path / "results.json").write_bytes(dumped(outcome))
    assert read(tmp_path / "results.json") == outcome


def test_rows_with_commas_in_their_names_are_told_apart():
    places = (Place("p", "conf, greedy"), Place("p", "random"))
    found = beside.Judged("it is so", "value", "held", places, ("1", "2"), ("–", "–"))
    assert markdown.claim_cells(found)[2:] == ["value: conf, greedy; random", "1, 2", "–"]
