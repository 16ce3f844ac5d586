"""Runs side by side: one command, resumable, with a table, a page and machine-readable results."""

from __future__ import annotations

import json
import statistics
import tomllib
from dataclasses import replace

import pytest
import tomli_w
import torch

from fedrelay.cli import main
from fedrelay.engines.pool.dispatch import cores
from fedrelay.errors import BadInput
from fedrelay.report import Against
from fedrelay.runs.summary import Evaluate, summarise
from fedrelay.studies.beside import workers
from fedrelay.studies.compared import Bases, Row, markdown
from fedrelay.studies.overrides import merged
from fedrelay.system.cores import CORES

TABLES = {
    "rounds": 3,
    "seeds": [0, 1],
    "reference": "all in one place",
    "data": {"name": "digits", "clients": 10, "partition": {"name": "dirichlet", "alpha": 0.0}},
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"batch": 16, "lr": 0.2},
    "evaluate": {"every": 1},
    "engine": {"name": "inline"},
    "runs": {
        "all in one place": {"algorithm": {"name": "centralized"}},
        "fedavg": {"algorithm": {"name": "fedavg"}},
        "fedseq + fedprox": {"algorithm": {"name": "fedseq+fedprox", "max_clients": 5}, "local": {"lr": 0.05}},
    },
}


def told(tmp_path, monkeypatch, tables, *arguments) -> int:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "methods.toml").write_text(tomli_w.dumps(tables))
    return main(["compare", "methods.toml", *arguments])


def test_all_runs_of_a_file_end_in_one_table(tmp_path, monkeypatch, capsys):
    assert told(tmp_path, monkeypatch, TABLES) == 0
    out = tmp_path / "runs" / "methods"
    found = json.loads((out / "results.json").read_text())
    assert [row["name"] for row in found] == list(TABLES["runs"])
    assert [len(row["summaries"]) for row in found] == [2, 2, 2]
    reference = statistics.fmean(summary["accuracy"] for summary in found[0]["summaries"])
    assert all(summary["target"] == pytest.approx(reference) for row in found[1:] for summary in row["summaries"])
    text = (out / "results.md").read_text()
    table = text.partition("\n\n")[2].partition("\n\n")[0]
    assert table.count("| \n") + table.count("|\n") + 1 == 1 + 1 + 3  # heading, rule, three runs
    fast = [row["speed_up"] for row in found]
    assert set(fast[0].values()) == {None}  # a round of the reference is none of theirs
    assert {value for value in fast[1].values() if value is not None} <= {1.0}
    assert "In brackets after rounds: how many times as fast as fedavg." in text
    mean = statistics.fmean(summary["accuracy"] for summary in found[1]["summaries"])
    assert f"| fedavg | {mean:.1%} ± " in text
    assert (out / "report.html").is_file()
    assert (out / "fedseq_+_fedprox" / "seed-1" / "summary.json").is_file()
    assert "fedseq + fedprox" in capsys.readouterr().out


def test_runs_that_predict_numbers_are_compared_by_their_error(tmp_path, monkeypatch, capsys):
    numbers = {"data": {"name": "diabetes", "clients": 4}, "model": {"name": "logistic"}, "task": {"metrics": ["mae"]}}
    runs = {"all": {"algorithm": {"name": "centralized"}}, "fedavg": {"algorithm": {"name": "fedavg"}}}
    assert told(tmp_path, monkeypatch, {**TABLES, **numbers, "seeds": [0], "reference": "all", "runs": runs}) == 0
    out = tmp_path / "runs" / "methods"
    (reference,), (summary,) = (row["summaries"] for row in json.loads((out / "results.json").read_text()))
    assert summary["metric"] == "mae"
    assert summary["target"] == reference["mean"]
    assert (out / "results.md").read_text().splitlines()[2].startswith("| run | MAE | best |")
    assert f"{summary['mean']:.4g}" in capsys.readouterr().out
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"The target is a test MAE of {summary['target']:.4g}" in page
    assert "<h2>Test MAE</h2>" in page


def test_a_comparison_repeated_trains_nothing(tmp_path, monkeypatch):
    tables = {**TABLES, "seeds": [0]}
    assert told(tmp_path, monkeypatch, tables) == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("checkpoint/*")}
    assert told(tmp_path, monkeypatch, tables) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("checkpoint/*")} == before


def test_a_run_that_fails_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    runs = {"wild": {"algorithm": {"name": "fedavg"}, "local": {"lr": 1e30}}, "tame": {"algorithm": {"name": "fedavg"}}}
    tables = {key: value for key, value in TABLES.items() if key not in ("seeds", "reference")} | {"runs": runs}
    assert told(tmp_path, monkeypatch, tables) == 1
    text = (tmp_path / "runs" / "methods" / "results.md").read_text()
    assert "| wild | failed |" in text
    assert "wild failed: round 1: every chain failed" in text
    assert "| tame | " in text


def test_overrides_reach_every_run(tmp_path, monkeypatch):
    assert told(tmp_path, monkeypatch, {**TABLES, "seeds": [4]}, "--set", "rounds=1", "--out", "here") == 0
    found = json.loads((tmp_path / "here" / "results.json").read_text())
    assert {summary["rounds"] for row in found for summary in row["summaries"]} == {1}


def test_a_run_that_names_another_method_keeps_what_that_knows_too_and_tells_what_it_does_not():
    base = {"algorithm": {"name": "fedseq", "fraction": 0.5, "max_clients": 3}, "local": {"lr": 1, "batch": 2}}
    changed = {"name": "fedseq", "fraction": 0.1, "max_clients": 3}
    assert merged(base, {"algorithm": {"fraction": 0.1}}) == ({**base, "algorithm": changed}, [])
    assert merged(base, {"algorithm": {"name": "fedavg"}}) == (
        {**base, "algorithm": {"name": "fedavg", "fraction": 0.5}},
        ["algorithm.max_clients"],
    )
    along, left_out = merged(base, {"algorithm": {"name": "fedseqinter+fedprox", "max_clients": 4, "mu": 1}})
    assert along["algorithm"] == {"name": "fedseqinter+fedprox", "fraction": 0.5, "max_clients": 4, "mu": 1}
    assert left_out == []
    assert merged(base, {"local": {"lr": 3}}) == ({**base, "local": {"lr": 3, "batch": 2}}, [])
    assert base["local"] == {"lr": 1, "batch": 2}


def test_sampler_and_merge_are_kept_unless_the_method_decides_them():
    base = {"algorithm": {"name": "fedavg", "sampler": {"name": "md"}, "merge": "median"}}
    assert merged(base, {"algorithm": {"name": "fedprox"}})[0]["algorithm"] == {**base["algorithm"], "name": "fedprox"}
    kept, left_out = merged(base, {"algorithm": {"name": "scaffold"}})
    assert kept["algorithm"] == {"name": "scaffold", "sampler": {"name": "md"}}
    assert left_out == ["algorithm.merge"]
    assert merged(base, {"algorithm": {"name": "centralized"}})[0]["algorithm"] == {"name": "centralized"}


def test_a_run_with_other_data_or_another_model_keeps_what_fits():
    base = {
        "data": {"name": "digits", "clients": 7, "partition": {"name": "dirichlet", "alpha": 0.1}},
        "model": {"name": "mlp", "hidden": [8]},
    }
    other = {"data": {"name": "synthetic", "partition": {"name": "iid"}}, "model": {"name": "logistic"}}
    tables, left_out = merged(base, other)
    assert tables["data"] == {"name": "synthetic", "clients": 7, "partition": {"name": "iid"}}
    assert tables["model"] == {"name": "logistic"}
    assert left_out == ["model.hidden"]


def test_the_fraction_of_the_file_reaches_every_run_and_unlike_work_is_told_everywhere(tmp_path, monkeypatch, capsys):
    runs = {"average": {}, "chains": {"algorithm": {"name": "fedcyclic", "laps": 3}}}
    algorithm = {"name": "fedprox", "fraction": 0.5, "mu": 0.1}
    tables = {key: value for key, value in TABLES.items() if key not in ("seeds", "reference")}
    tables |= {"rounds": 2, "evaluate": {"every": 1}}
    assert told(tmp_path, monkeypatch, {**tables, "algorithm": algorithm, "runs": runs}) == 0
    out = tmp_path / "runs" / "methods"
    for name in runs:
        assert tomllib.loads((out / name / "config.toml").read_text())["algorithm"]["fraction"] == 0.5
    printed = " ".join(capsys.readouterr().out.split())
    for text in (printed, (out / "results.md").read_text(), (out / "report.html").read_text()):
        assert "chains does without algorithm.mu of the file, which fedcyclic does not know." in text
        # half of ten clients, and three times that
        assert "The runs differ in visits a round (average 5, chains 15)" in text
        assert "The runs differ in examples a round" in text


def test_runs_that_work_alike_are_not_remarked_on(tmp_path, monkeypatch, capsys):
    runs = {"one": {"algorithm": {"name": "fedavg"}}, "two": {"algorithm": {"name": "fedprox"}}}
    tables = {key: value for key, value in TABLES.items() if key not in ("seeds", "reference")}
    assert told(tmp_path, monkeypatch, {**tables, "rounds": 1, "runs": runs}) == 0
    assert "differ" not in capsys.readouterr().out


def test_figures_over_seeds_are_means_with_their_spread():
    one = summarise("x", [], Evaluate(), params_sha256="")
    row = Row(
        "x", (replace(one, accuracy=0.5, rounds_to={"0.8": 4}), replace(one, accuracy=0.7, rounds_to={"0.8": None}))
    )
    # standard deviation of 0.5 and 0.7: 0.2 / √2 = 0.141
    assert row.over_seeds(lambda summary: summary.accuracy, "{:.1%}".format) == "60.0% ± 14.1%"
    assert row.over_seeds(lambda summary: summary.rounds_to["0.8"], "{:.0f}".format) == "–"


def row_of(name, method, rounds, groups=10.0, loss=0.5):
    """A run of a table, from its rounds to 70, 80 and 90 %."""
    one = summarise(method, [], Evaluate(), params_sha256="")
    shares = dict(zip(("0.7", "0.8", "0.9"), rounds, strict=True))
    return Row(name, (replace(one, rounds_to=shares, parallelism=groups, mean_loss=loss),))


TABLE_II = [  # FedSeq 2022, CIFAR-10, α = 0
    row_of("FedAvg", "fedavg", (4036, 7649, None), 500.0, 0.602),
    row_of("FedSeq1", "fedseq", (594, 991, 2047), 50.0, 0.453),
    row_of("FedSeq2Par", "fedseq2par", (345, 581, 1341), 113.0),
]


def test_speed_up_and_parallelism_are_written_as_in_the_papers_tables():
    lines = [line.split(" | ") for line in markdown(TABLE_II, "x").splitlines() if line.startswith("| ")][2:5]
    columns = markdown(TABLE_II, "x").splitlines()[2].split(" | ")
    at = columns.index("rounds to 70%")
    assert lines[0][at : at + 3] == ["4036 (1.00×)", "7649 (1.00×)", "– (–)"]
    assert lines[1][at : at + 3] == ["594 (6.79×)", "991 (7.72×)", "2047 (–)"]
    assert [line[columns.index("groups")] for line in lines] == ["500 (10.00×)", "50 (1.00×)", "113 (2.26×)"]
    assert [line[columns.index("loss")] for line in lines[:2]] == ["0.602", "0.453"]
    other = Bases.of(TABLE_II, Against("FedSeq1"))
    assert other.speed_up(TABLE_II[0], "0.8") == pytest.approx(991 / 7649)


def test_nobody_is_measured_against_one_of_several_that_could_be_meant():
    rows = [row_of("a", "fedavg", (1, 2, 3)), row_of("b", "fedavg", (1, 2, 3))]
    assert Bases.of(rows) == Bases()
    assert Bases.of([*rows, row_of("FEDAVG", "fedprox", (2, 2, 2))]).speed.name == "FEDAVG"
    assert Bases.of(rows[:1]) == Bases()  # there is nobody else
    assert Bases.of([rows[0], row_of("all", "centralized", (1, 1, 1))]) == Bases()
    assert "(" not in markdown(rows, "x").splitlines()[4]
    with pytest.raises(BadInput, match="there is no run 'c' to measure the others against: there is a, b"):
        Bases.of(rows, Against("c"))


def test_brackets_are_explained_only_where_there_are_some():
    without = [Row(row.name, (replace(row.summaries[0], rounds_to={}),)) for row in TABLE_II]
    assert "In brackets after rounds" in markdown(TABLE_II, "x")
    assert "In brackets after rounds" not in markdown(without, "x")


def test_means_over_seeds_make_the_speed_up_and_a_seed_that_never_got_there_makes_none():
    slow, fast = (
        Row(n, tuple(row_of(n, n, r).summaries[0] for r in rounds))
        for n, rounds in {"fedavg": ((10, 20, 30), (30, 20, None)), "fedprox": ((5, 5, 5), (5, 20, 5))}.items()
    )
    bases = Bases.of([slow, fast])
    assert [bases.speed_up(fast, share) for share in ("0.7", "0.8", "0.9")] == [4.0, pytest.approx(1.6), None]


def test_time_and_traffic_to_the_target_have_a_table_of_their_own():
    known = {"computing_seconds": {"0.7": 1.25}, "communication_seconds": {"0.7": 90.0}, "traffic_bytes": {"0.7": 4e6}}
    one, two, _ = TABLE_II
    told = Row(one.name, (replace(one.summaries[0], estimates_to=known),))
    lines = markdown([told, two], "x").splitlines()
    start = lines.index("By FedGSP's formulas, every visit by way of the server:")
    assert lines[start + 2].startswith("| run | computing s to 70% |")
    assert lines[start + 4] == "| FedAvg | 1.25 | – | – | 90 | – | – | 4.0 | – | – |"
    assert "FedGSP" not in markdown([one, two], "x")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"baseline": "fedavgg"}, "baseline 'fedavgg' is no run; did you mean 'fedavg'"),
        ({"parallelism_baseline": 3}, "parallelism_baseline 3 is no run"),
        ({"runs": {}}, "there are no runs to compare"),
        ({"reference": "centralised"}, "reference 'centralised' is no run"),
        ({"seeds": [0, "one"]}, "seeds must be a list of whole numbers"),
        ({"runs": {"a b": {}, "a_b": {}}, "reference": "a b"}, "two runs would share a folder"),
        ({"rouns": 3}, "unknown key 'rouns'; did you mean 'rounds'"),
        (
            {"runs": {"x": {"algorithm": {"name": "fedprx"}}}, "reference": "x"},
            "run 'x': [algorithm]: unknown name 'fedprx'",
        ),
    ],
)
def test_mistakes_are_refused_before_anything_runs(changes, message, tmp_path, monkeypatch, capsys):
    assert told(tmp_path, monkeypatch, {**TABLES, **changes}) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "runs").exists()


def test_several_runs_at_a_time_give_the_same_results(tmp_path, monkeypatch):
    tables = {key: value for key, value in TABLES.items() if key not in ("seeds", "reference")} | {"rounds": 2}
    assert told(tmp_path, monkeypatch, tables, "--out", "one") == 0
    assert told(tmp_path, monkeypatch, tables, "--out", "two", "--jobs", "2") == 0
    one, two = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("one", "two"))
    prints = [[s["params_sha256"] for row in found for s in row["summaries"]] for found in (one, two)]
    assert prints[0] == prints[1]


def test_runs_beside_each_other_share_the_cores(monkeypatch):
    monkeypatch.setenv(CORES, "5")
    with workers(2) as pool:
        assert pool is not None
        assert [pool.submit(found).result() for found in (cores, torch.get_num_threads)] == [2, 2]
    monkeypatch.setenv(CORES, "many")
    with pytest.raises(BadInput, match="FEDRELAY_CORES must be a whole number from 1 to 9999, not 'many'"):
        cores()


def test_a_run_that_fails_beside_others_is_named_and_does_not_stop_them(tmp_path, monkeypatch, capsys):
    average = {"algorithm": {"name": "fedavg"}}
    runs = {"good": average, "bad": {**average, "local": {"lr": 1e30}}}
    tables = {key: value for key, value in TABLES.items() if key not in ("seeds", "reference")}
    assert told(tmp_path, monkeypatch, {**tables, "rounds": 2, "runs": runs}, "--out", "out", "--jobs", "2") == 1
    rows = {row["name"]: row for row in json.loads((tmp_path / "out" / "results.json").read_text())}
    assert rows["good"]["summaries"]
    assert not rows["good"]["failed"]
    assert "every chain failed" in rows["bad"]["failed"][0]
    assert "bad failed: round 1: every chain failed" in capsys.readouterr().err.replace("\n", " ")
