"""The results in the documents are those that are kept beside them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from example_item import tables

from fedrelay.errors import BadInput
from fedrelay.studies.reproduce import results_page
from fedrelay.studies.reproduce.finished import Finished
from fedrelay.studies.reproduce.item import Paper, Printed
from fedrelay.studies.reproduce.outcome import dumped, outcome_of
from fedrelay.studies.reproduce.reading import item_of

DOCS = Path(__file__).parents[3] / "docs"
PAPER = Paper("x", "On x", "A and B", 2020, "X 2020", "arXiv:1")
ITEM = item_of(
    tables(
        study="formulas",
        experiment={"clients": 10, "model": 1e6, "runs": {"A": {"method": "fedavg"}, "B": {"method": "dfedsam"}}},
        panels={"p": {}},
        columns=[{"name": "value", "measure": "figure", "figure": "v"}],
        paper={"p": {"A": {"value": 4}}},
        claims=[
            {"text": "A is below B", "column": "value", "rising": ["A", "B"]},
            {"text": "B is below A", "column": "value", "rising": ["B", "A"]},
        ],
        scales={"small": {"why": "less"}, "smoke": {"why": "least"}},
    ),
    "x/table1",
    PAPER,
)


def outcome(a: float, b: float, scale: str = "small"):
    return outcome_of(ITEM, scale, {"p": Finished(figures={"A": ({"v": a},), "B": ({"v": b},)})})


def test_every_claim_is_one_line_with_ours_the_papers_and_the_command():
    text = results_page.renewed(
        "before\n<!-- claims -->\nold\n<!-- end -->\nafter\n", [(PAPER, [(ITEM, outcome(1, 2))])]
    )
    assert text.startswith("before\n<!-- claims -->\n")
    assert text.endswith("<!-- end -->\nafter\n")
    assert "old" not in text
    command = "`fedrelay reproduce x/table1 --scale small`"
    assert f"| A is below B | held | value: A, B | 1, 2 | 4, – | small | {command} |" in text
    assert f"| B is below A | not held | value: B, A | 2, 1 | –, 4 | small | {command} |" in text
    assert "1 tables and figures, 1 of them run; of 2 claims 1 held, 1 not held, 0 not tried." in text


def test_what_was_not_run_is_not_tried(tmp_path):
    found = results_page.outcome_in(tmp_path, ITEM)
    assert [claim.verdict for claim in found.claims] == ["not tried", "not tried"]
    page = results_page.page_of(PAPER, [(ITEM, found)])
    assert "A and B, On x, 2020, arXiv:1." in page
    assert "## Not run yet\n\n- `fedrelay reproduce x/table1`: Table 1, Two methods" in page


def test_what_was_not_tried_is_counted_and_listed_on_the_page_of_the_paper_only(tmp_path):
    several = [(ITEM, results_page.outcome_in(tmp_path, ITEM))]
    text = results_page.claims([(PAPER, several)])
    assert "A is below B" not in text
    assert "1 tables and figures, 0 of them run; of 2 claims 0 held, 0 not held, 2 not tried." in text
    assert "\n## All claims\n" in results_page.page_of(PAPER, several)
    assert "| A is below B | not tried | value: A, B |" in results_page.page_of(PAPER, several)


def test_kept_numbers_are_judged_by_the_claims_that_the_item_has_now(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "table1.json").write_bytes(dumped(outcome(1, 2)))
    claims = (replace(ITEM.claims[1], text="another claim"),)
    now = replace(ITEM, claims=claims, printed={"p": {"B": {"value": Printed(9)}}})
    found = results_page.outcome_in(tmp_path, now)
    assert [(claim.text, claim.verdict) for claim in found.claims] == [("another claim", "not held")]
    assert found.claims[0].paper == ("9", "–")
    assert found.parts[0].cell("A", "value").paper is None


def test_kept_numbers_of_another_unit_judge_nothing(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "table1.json").write_bytes(dumped(outcome(1, 2)))
    now = replace(ITEM, columns=(replace(ITEM.columns[0], unit="%"),))
    assert {claim.verdict for claim in results_page.outcome_in(tmp_path, now).claims} == {"not tried"}


def test_results_are_taken_over_from_the_largest_scale_and_never_from_smoke(tmp_path):
    runs, kept = tmp_path / "runs", tmp_path / "docs"
    for scale, found in (("smoke", outcome(1, 2, "smoke")), ("small", outcome(3, 4))):
        (runs / "x" / "table1" / scale).mkdir(parents=True)
        (runs / "x" / "table1" / scale / "results.json").write_bytes(dumped(found))
    assert results_page.take_over(runs, kept, ["x/table1", "x/table2"]) == [kept / "x" / "table1.json"]
    assert results_page.outcome_in(kept, ITEM) == outcome(3, 4)
    (runs / "x" / "table1" / "paper").mkdir()
    empty = replace(outcome(1, 1, "paper"), parts=())  # begun, and nothing there yet
    (runs / "x" / "table1" / "paper" / "results.json").write_bytes(dumped(empty))
    results_page.take_over(runs, kept, ["x/table1"])
    assert results_page.outcome_in(kept, ITEM) == outcome(3, 4)
    (runs / "x" / "table1" / "paper" / "results.json").write_bytes(dumped(outcome(5, 6, "paper")))
    results_page.take_over(runs, kept, ["x/table1"])
    assert results_page.outcome_in(kept, ITEM) == outcome(5, 6, "paper")


def test_rows_that_came_farther_before_are_kept(tmp_path):
    def to(a: int, b: int, scale: str = "small"):
        found = outcome(a, b, scale)
        lines = (replace(line, rounds=(rounds,)) for line, rounds in zip(found.parts[0].lines, (a, b), strict=True))
        return replace(found, parts=(replace(found.parts[0], lines=tuple(lines)),))

    found = results_page.with_kept_rows(to(2, 30), to(10, 20))
    assert [line.rounds for line in found.parts[0].lines] == [(10,), (30,)]
    assert [line.cells["value"].ours for line in found.parts[0].lines] == [10, 30]
    assert results_page.with_kept_rows(to(2, 30, "paper"), to(10, 20)) == to(2, 30, "paper")


def test_rows_and_panels_that_were_not_run_this_time_are_kept():
    whole = outcome(1, 2)
    (part,) = whole.parts
    only_a = replace(whole, parts=(replace(part, lines=part.lines[:1]),))
    assert results_page.with_kept_rows(only_a, whole) == whole
    other = replace(whole, parts=(replace(part, name="q"),))
    assert [one.name for one in results_page.with_kept_rows(other, whole).parts] == ["q", "p"]


def test_the_tables_of_a_paper_are_on_its_page():
    page = results_page.page_of(PAPER, [(ITEM, outcome(1, 2))])
    assert "\n## X 2020, Table 1\n" in page
    assert "\n### p\n" in page
    assert "| A | 1 | 4 | −3 |" in page


def test_a_document_without_a_place_is_refused():
    with pytest.raises(BadInput, match="no place for claims"):
        results_page.renewed("nothing", [])


def test_the_documents_of_the_repository_are_up_to_date():
    papers = results_page.gathered(DOCS / "results")
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    remedy = "run python -m fedrelay.studies.reproduce.results_page docs/results.md docs/results"
    assert results_page.renewed(text, papers) == text, remedy
    for paper, several in papers:
        page = (DOCS / "results" / f"{paper.name}.md").read_text(encoding="utf-8")
        assert page == results_page.page_of(paper, several), remedy
