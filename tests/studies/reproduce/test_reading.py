"""Items are read from files, and every mistake is told with the file and the key."""

from __future__ import annotations

import pytest
from example_item import TABLES, tables, written

from fedrelay.errors import BadInput
from fedrelay.studies.reproduce import library, scales
from fedrelay.studies.reproduce.item import Paper, Place
from fedrelay.studies.reproduce.reading import item_of, read


def of(content):
    return item_of(content, "mine", Paper("", ""))


def test_an_item_has_what_its_file_says(tmp_path):
    item = read(written(tmp_path, TABLES))
    assert item.name == "mine"
    assert list(item.panels) == ["one class", "mixed"]
    assert item.printed["mixed"]["FedAvg"]["accuracy"].deviation == 0.5
    assert item.printed["mixed"]["FedAvg"]["rounds"].value is None
    assert item.claims[0].places == (Place("mixed", "FedAvg"), Place("mixed", "FedSeq"))


def claimed(place):
    return {"text": "a", "column": "accuracy", "rising": [place]}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"colums": []}, r"unknown key 'colums'; did you mean 'columns'"),
        ({"study": "compares"}, r"study: unknown name 'compares'; did you mean 'compare'"),
        ({"columns": [{"name": "a", "measure": "acuracy"}]}, r"\[\[columns\]\] 1.measure: unknown name 'acuracy'"),
        ({"columns": [{"name": "a", "measure": "accuracy", "share": 1}]}, r"columns\]\] 1: unknown key 'share'"),
        ({"columns": [{"name": "a", "measure": "accuracy", "unit": "pt"}]}, r"columns\]\] 1.unit: unknown key 'pt'"),
        ({"columns": [{"name": "a", "measure": "rounds_to"}]}, r"columns\]\] 1.share is missing"),
        ({"pictures": ["curve"]}, r"pictures: unknown name 'curve'; did you mean 'curves'"),
        ({"scales": {"tiny": {}}}, r"\[scales\]: unknown key 'tiny'"),
        ({"scales": {"small": {"panels": ["mixd"]}}}, r"\[scales.small\]: there is no 'mixd'; did you mean 'mixed'"),
        ({"scales": {"small": {"runs": ["FedAv"]}}}, r"\[scales.small\].runs: there is no 'FedAv'"),
        ({"paper": {"mixd": {}}}, r"\[paper\]: there is no 'mixd'"),
        ({"paper": {"mixed": {"FedAv": {}}}}, r"\[paper.'mixed'\]: there is no 'FedAv'"),
        ({"paper": {"mixed": {"FedAvg": {"x": 1}}}}, r"\[paper.'mixed'.'FedAvg'\]: there is no 'x'"),
        ({"paper": {"mixed": {"FedAvg": {"accuracy": "often"}}}}, r"expected a number, not 'often'"),
        ({"claims": [{"text": "a", "column": "accuracy"}]}, r"\[\[claims\]\] 1: say one of rising"),
        ({"claims": [{"text": "a", "column": "accuracy", "rising": []}]}, r"1.rising: expected a list of rows"),
        ({"claims": [{"text": "a", "column": "b", "rising": ["FedAvg"]}]}, r"1.column: there is no 'b'"),
        ({"claims": [{"text": "a", "column": "accuracy", "least": {"Fed": 1}}]}, r"1.least: there is no 'Fed'"),
        ({"means": {"both": {"of": ["mixed", "none"]}}}, r"means.both.of: there is no 'none'"),
        ({"claims": [claimed(["a", "b", "c"])]}, r"claims\]\] 1.rising: expected the name of a row, or \[panel, row\]"),
        ({"claims": [claimed(["", 3])]}, r"1.rising: expected the name of a row, or \[panel, row\], not \['', 3\]"),
        ({"claims": [claimed([["a"], "b"])]}, r"1.rising: expected the name of a row, or \[panel, row\], not \[\['a'"),
        ({"columns": [{"name": "a", "measure": "best"}] * 2}, r"columns\]\] 2.name: 'a' is the name of another column"),
        ({"columns": [{"name": "a", "measure": "best", "per": "FedAv"}]}, r"1.per: there is no 'FedAv'; did you mean"),
        ({"columns": [{"name": "a", "measure": "best", "minus": "x"}]}, r"columns\]\] 1.minus: there is no 'x'"),
        (
            {"columns": [{"name": "a", "measure": "best", "less_than": "x"}]},
            r"columns\]\] 1.less_than: there is no 'x'",
        ),
        (
            {"columns": [{"name": "a", "measure": "speed_up", "share": 0.5, "against": "Fedavg"}]},
            r"\[\[columns\]\] 1.against: there is no 'Fedavg'; did you mean 'FedAvg'",
        ),
    ],
)
def test_what_is_not_there_is_refused_with_its_place(tmp_path, changes, told):
    path = written(tmp_path, tables(**changes))
    with pytest.raises(BadInput, match=told) as refusal:
        read(path)
    assert str(refusal.value).startswith(str(path))


@pytest.mark.parametrize("key", ["title", "where", "study"])
def test_what_every_item_needs_is_asked_for(key):
    content = tables()
    del content[key]
    with pytest.raises(BadInput, match=f"{key} is missing"):
        of(content)


def test_an_item_without_panels_leaves_them_out_of_the_numbers_too():
    content = tables(paper={"FedAvg": {"accuracy": 1}}, claims=[], scales={})
    del content["panels"]
    assert of(content).printed[""]["FedAvg"]["accuracy"].value == 1


def test_a_name_that_is_nearly_right_is_told_the_right_one():
    with pytest.raises(BadInput, match="there is no table or figure 'fedseq/tabel2'; did you mean 'fedseq/table2'"):
        library.wanted("fedseq/tabel2")
    assert [item.name for item in library.wanted("fedseq")] == [n for n in library.names() if n.startswith("fedseq/")]


# --- scales: laws of laying one table over another


def test_a_scale_without_changes_is_the_papers():
    item = of(tables(scales={"small": {}, "smoke": {}}))
    for panel in item.panels:
        assert scales.tables_of(item, "small", panel) == scales.tables_of(item, "paper", panel)


def test_the_panel_goes_over_the_experiment_and_the_scale_over_both():
    small = {"change": {"data": {"clients": 4}}, "change_in": {"mixed": {"data": {"partition": {"alpha": 2.0}}}}}
    item = of(tables(scales={"small": small}))
    data = {panel: scales.tables_of(item, "small", panel)["data"] for panel in item.panels}
    assert data["one class"] == {"name": "digits", "clients": 4, "partition": {"name": "dirichlet", "alpha": 0.0}}
    assert data["mixed"] == {"name": "digits", "clients": 4, "partition": {"name": "dirichlet", "alpha": 2.0}}
    paper = scales.tables_of(item, "paper", "mixed")["data"]
    assert paper == {"name": "digits", "clients": 10, "partition": {"name": "dirichlet", "alpha": 0.5}}


def test_other_data_keeps_what_it_knows_too():
    change = {"data": {"name": "synthetic", "examples": 50}}
    item = of(tables(scales={"smoke": {"change": change}}))
    assert scales.tables_of(item, "smoke", "mixed")["data"] == {
        "name": "synthetic",
        "examples": 50,
        "clients": 10,
        "partition": {"name": "dirichlet", "alpha": 0.5},
    }


def test_a_scale_may_leave_rows_out_and_have_its_own():
    change = {"runs": {"FedProx": {"algorithm": {"name": "fedprox"}}}}
    item = of(tables(scales={"small": {"runs": ["FedProx", "FedSeq"], "change": change}}))
    assert scales.rows_of(item, "small", "mixed") == ["FedSeq", "FedProx"]
    assert scales.rows_of(item, "paper", "mixed") == ["FedAvg", "FedSeq"]


def test_the_reference_is_never_left_out():
    content = tables(scales={"small": {"runs": ["FedSeq"]}})
    content["experiment"]["reference"] = "FedAvg"
    assert scales.rows_of(of(content), "small", "mixed") == ["FedAvg", "FedSeq"]


def test_reading_changes_nothing_of_what_it_reads():
    content = tables()
    of(content)
    assert content == TABLES
