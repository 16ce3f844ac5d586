"""One command from an item to its pages: resumable, and honest about what is missing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from example_item import tables, written

from fedrelay.cli import main
from fedrelay.studies import compare
from fedrelay.studies.reproduce import carry_out, dry_run, library
from fedrelay.studies.reproduce.reading import read


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDRELAY_DATA", str(tmp_path / "no data"))
    return tmp_path


def made(folder: Path) -> set[Path]:
    return {path.parent for path in folder.rglob("summary.json")}


def test_an_own_item_ends_in_a_table_a_page_and_results(here, capsys):
    path = written(here, tables(pictures=["curves"]))
    assert main(["reproduce", str(path), "--scale", "small"]) == 0
    out = here / "runs" / "reproduce" / "mine" / "small"
    found = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert [part["name"] for part in found["parts"]] == ["one class", "mixed"]
    assert [line["rounds"] for line in found["parts"][1]["lines"]] == [[2, 2], [2, 2]]
    assert found["claims"][0]["verdict"] in ("held", "not held")
    page = (out / "page.html").read_text(encoding="utf-8")
    assert "mixed: test accuracy over rounds" in page
    assert "two rounds. Other sizes than the paper" in page
    assert len(made(out)) == 8  # two panels, two runs, two seeds
    assert "FedSeq is better" in capsys.readouterr().out


def test_what_is_done_is_not_done_again_and_only_does_the_rest_later(here):
    path = str(written(here, tables()))
    assert main(["reproduce", path, "--out", "out", "--only", "mixed", "--only", "fedavg"]) == 0
    first = {folder: (folder / "rounds.jsonl").read_bytes() for folder in made(here / "out")}  # with seconds in it
    assert {folder.relative_to(here / "out").parts[:2] for folder in first} == {("mixed", "FedAvg")}
    assert main(["reproduce", path, "--out", "out", "--only", "mixed", "--only", "fedseq"]) == 0
    found = json.loads((here / "out" / "results.json").read_text(encoding="utf-8"))
    (mixed,) = found["parts"]
    assert [line["rounds"] for line in mixed["lines"]] == [[2, 2], [2, 2]]  # the earlier ones are there too
    assert main(["reproduce", path, "--out", "out"]) == 0
    assert len(made(here / "out")) == 8
    assert all((folder / "rounds.jsonl").read_bytes() == lines for folder, lines in first.items())


def test_a_run_of_another_set_up_is_not_shown_beside_the_papers_numbers(here, capsys):
    path = str(written(here, tables()))
    assert main(["reproduce", path, "--out", "out", "--only", "mixed", "--only", "fedavg"]) == 0
    content = tables()
    content["experiment"]["local"]["lr"] = 0.1
    written(here, content)
    capsys.readouterr()
    assert main(["reproduce", path, "--out", "out", "--only", "mixed", "--only", "fedseq"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "holds a run of another set-up: local.lr is 0.2 there and 0.1 here; move that folder away" in said


def test_stopped_in_the_middle_it_shows_what_is_there_and_goes_on(here, monkeypatch):
    path = str(written(here, tables()))
    whole = compare.run

    def stopped(job, *rest):
        if job.name == "FedSeq":
            raise KeyboardInterrupt
        return whole(job, *rest)

    monkeypatch.setattr(compare, "run", stopped)
    assert main(["reproduce", path, "--out", "out"]) == 130
    found = json.loads((here / "out" / "results.json").read_text(encoding="utf-8"))
    assert found["parts"][0]["lines"][0]["rounds"] == [2, 2]
    assert found["parts"][0]["lines"][0]["cells"]["accuracy"]["ours"] is not None
    assert len(made(here / "out")) == 2
    monkeypatch.setattr(compare, "run", whole)
    assert main(["reproduce", path, "--out", "out"]) == 0
    assert len(made(here / "out")) == 8


def test_what_failed_or_was_left_out_is_told_until_it_is_tried_again(here, monkeypatch):
    content = tables()
    content["panels"]["none"] = {"data": {"name": "cifar10"}}
    path, whole = str(written(here, content)), compare.run
    monkeypatch.setattr(compare, "run", lambda job, *rest: "too large" if job.name == "FedSeq" else whole(job, *rest))
    main(["reproduce", path, "--out", "out"])
    monkeypatch.setattr(compare, "run", whole)

    def told():
        found = json.loads((here / "out" / "results.json").read_text(encoding="utf-8"))
        return [text.partition(":")[0] for text in (*found["left_out"], *dict.fromkeys(found["failed"]))]

    assert sorted(set(told())) == ["mixed, FedSeq", "none is left out", "one class, FedSeq"]
    assert main(["reproduce", path, "--out", "out", "--only", "mixed"]) == 1  # some runs of the item have failed
    assert sorted(set(told())) == ["none is left out", "one class, FedSeq"]
    assert main(["reproduce", path, "--out", "out"]) == 0
    assert told() == ["none is left out"]


def test_missing_data_is_told_before_anything_runs(here, capsys):
    content = tables(needs="the images")
    content["panels"]["mixed"]["data"]["name"] = "cifar10"
    path = str(written(here, content))
    assert main(["reproduce", path, "--out", "out"]) == 0
    said = capsys.readouterr().err
    assert "mixed is left out: cifar10 is not in" in said
    assert "`fedrelay data get cifar10`" in said
    assert "it needs the images" in said
    assert "mixed is left out" in (here / "out" / "table.md").read_text(encoding="utf-8")
    assert main(["reproduce", path, "--out", "other", "--only", "mixed"]) == 2
    assert not (here / "other").exists()


def test_a_mistake_in_the_last_panel_does_not_wait_for_the_first(here, capsys):
    content = tables()
    content["panels"]["mixed"]["data"]["clients"] = 10_000  # more than there are digits
    path = str(written(here, content))
    assert main(["reproduce", path, "--out", "out"]) == 2
    assert "mine, mixed: experiment, run 'FedAvg': [data]" in capsys.readouterr().err
    assert not (here / "out").exists()
    assert main(["reproduce", path, "--out", "out", "--only", "one class"]) == 0


def test_what_cannot_be_run_of_a_paper_does_not_keep_the_rest_from_it(here, monkeypatch, capsys):
    bad, good = tables(), tables()
    bad["experiment"]["data"]["clients"] = 10_000
    items = [replace(read(written(here, content)), name=f"x/{name}") for name, content in (("a", bad), ("b", good))]
    monkeypatch.setattr(library, "wanted", lambda text: items)
    assert main(["reproduce", "x", "--scale", "smoke", "--out", "out"]) == 2
    assert "x/a, mixed: " in capsys.readouterr().err
    assert (here / "out" / "x" / "b" / "smoke" / "table.md").is_file()


def test_results_of_something_else_are_not_overwritten(here, capsys):
    path = str(written(here, tables()))
    (here / "out").mkdir()
    (here / "out" / "results.json").write_text('{"item": "another"}')
    assert main(["reproduce", path, "--out", "out"]) == 2
    assert "holds results of something else" in capsys.readouterr().err
    assert (here / "out" / "results.json").read_text() == '{"item": "another"}'


def test_a_text_that_is_in_no_name_is_refused_with_what_there_is(here, capsys):
    path = str(written(here, tables()))
    assert main(["reproduce", path, "--only", "fedprox"]) == 2
    assert "(there is: one class, mixed, FedAvg, FedSeq)" in capsys.readouterr().err


def test_a_dry_run_counts_visits_and_runs_nothing(here, capsys):
    item = read(written(here, tables()))
    planned = carry_out.plan(item, "paper", here / "out")
    found = dry_run.rough(item, planned)
    # 10 clients, so everybody takes part: 3 rounds make 30 visits a seed
    assert [(row.panel, row.row, row.seeds, row.rounds, row.visits) for row in found] == [
        ("one class", "FedAvg", 2, 3, 30),
        ("one class", "FedSeq", 2, 3, 30),
        ("mixed", "FedAvg", 2, 3, 30),
        ("mixed", "FedSeq", 2, 3, 30),
    ]
    assert main(["reproduce", "mine.toml", "--scale", "paper", "--dry-run"]) == 0
    assert "About 240 visits" in capsys.readouterr().out
    assert not (here / "runs").exists()


def test_all_items_are_listed_with_what_they_lack(here, capsys):
    assert main(["reproduce"]) == 0
    said = capsys.readouterr().out
    assert "fedseq/table2" in said
    assert "cifar10" in said
