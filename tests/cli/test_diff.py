from __future__ import annotations

import json
from pathlib import Path

import pytest
from invented_runs import run_folder

from fedrelay import cli

FILE = """
rounds = 3
[data]
name = "synthetic"
examples = 40
test_examples = 20
shape = [4]
clients = 4
[model]
name = "mlp"
[algorithm]
name = "{method}"
"""


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, method in (("a", "fedavg"), ("b", "fedseq"), ("lost", "fedavg")):
        (tmp_path / f"{name}.toml").write_text(FILE.format(method=method))
    (tmp_path / "lost.toml").write_text(FILE.format(method="fedavg").replace('"synthetic"', '"cifar10"'))
    return tmp_path


def differences(capsys, *arguments: str) -> tuple[int, dict[str, list[object]], str]:
    code = cli.main(["diff", *arguments, "--json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out), printed.err


def test_files_are_compared_as_they_would_run(here, capsys):
    code, found, said = differences(capsys, "a.toml", "b.toml")
    assert code == 1
    assert found == {
        "algorithm.name": ["fedavg", "fedseq"],
        "algorithm.laps": [None, 1],
        "algorithm.reshuffle": [None, False],
    }
    assert said == ""
    assert differences(capsys, "a.toml", "b.toml", "--as-written")[1] == {"algorithm.name": ["fedavg", "fedseq"]}


def test_what_says_the_same_ends_with_0(here, capsys):
    (here / "spelled.toml").write_text(FILE.format(method="fedavg") + "[local]\nepochs = 1\n")
    assert differences(capsys, "a.toml", "spelled.toml")[:2] == (0, {})
    assert cli.main(["diff", "a.toml", "a.toml"]) == 0
    assert capsys.readouterr().out == "a.toml and a.toml say the same\n"


def test_values_are_lined_up_and_whole_without_a_terminal(here, capsys):
    long = "long" * 60
    run_folder(here / "one")
    run_folder(here / "two", rounds=5, algorithm=long)
    assert cli.main(["diff", "one", "two"]) == 1
    head, *lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [["rounds", "4", "5"], ["algorithm.name", '"fedseq"', f'"{long}"']]
    assert head.index("two") == lines[0].index("5") == lines[1].index('"long')


def test_what_cannot_be_resolved_is_compared_as_it_is_written(here, capsys):
    code, found, said = differences(capsys, "a.toml", "lost.toml", "--data-dir", str(here))
    assert (code, set(found)) == (1, {"data.name"})
    assert "lost.toml cannot be resolved" in said


@pytest.mark.parametrize("damage", ["nowhere", "empty", "broken"])
def test_a_damaged_folder_is_refused_by_name(here, damage, capsys):
    if damage != "nowhere":
        (here / damage).mkdir()
    if damage == "broken":
        (here / damage / "config.toml").write_text("rounds = [")
    assert cli.main(["diff", "a.toml", damage]) == 2
    assert damage in capsys.readouterr().err
