from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from needs import posix

from fedrelay import cli, config
from fedrelay.data.sources import FILES
from fedrelay.models import MODELS
from fedrelay.studies.first_file import MODELS as CHOSEN
from fedrelay.studies.first_file import OWNED, Wanted, meanings, tables_of, written
from fedrelay.system.console import PlainConsole

INLINE = ["--set", "engine.name=inline"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{site},{age},{'no' if age % 3 else 'yes'}\n" for site in ("ulm", "graz") for age in range(20, 50))
    (tmp_path / "patients.csv").write_text(f"site,age,again\n{rows}")
    return tmp_path


def test_without_a_terminal_it_asks_nothing_and_what_it_writes_runs(capsys):
    assert cli.main(["init"]) == 0
    assert "fedrelay run experiment.toml" in capsys.readouterr().out
    assert cli.main(["run", "experiment.toml", "--set", "rounds=1", *INLINE, "--out", "one"]) == 0
    assert cli.main(["run", "experiment.toml", "--set", "rounds=1", *INLINE, "--set", "algorithm.name=fedavg"]) == 0
    assert "fedseq on digits, 100 clients, alpha 0:" in capsys.readouterr().out


@pytest.mark.parametrize("data", ["digits", "femnist", "cifar10", "shakespeare", "patients.csv"])
@pytest.mark.parametrize("matters", ["rounds", "traffic", "time"])
def test_every_key_has_its_meaning_above_it_and_values_are_what_was_asked_for(data, matters):
    wanted = Wanted(data, matters=matters, label="again" if data == "patients.csv" else None)
    tables = tables_of(wanted)
    text = written(tables, wanted, "mine.toml")
    assert tomllib.loads(text) == tables
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line and not line.startswith(("#", "[")):
            assert lines[number - 1].startswith("# "), line
        assert len(line) <= 120
    for section, values in tables.items():
        if isinstance(values, dict):
            assert {*values} <= {*meanings(section, tables)}


def test_chains_are_chosen_where_order_gains_something():
    chosen = {
        (alpha, matters): tables_of(Wanted(alpha=alpha, matters=matters))["algorithm"]["name"]
        for alpha in (0.0, 100.0)
        for matters in ("rounds", "traffic", "time")
    }
    assert [key for key, name in chosen.items() if name == "fedavg"] == [
        (0.0, "time"),
        (100.0, "rounds"),
        (100.0, "time"),
    ]


def test_there_is_a_model_for_every_data_set():
    assert {*CHOSEN.values(), "lenet5"} <= {*MODELS}
    assert {*OWNED} <= {*FILES}


def test_a_table_of_ones_own_is_read_before_anything_is_written(here, capsys):
    own = ["init", "mine.toml", "--data", "patients.csv"]
    assert cli.main([*own, "--client", "hospital", "--label", "again"]) == 2
    assert "hospital" in capsys.readouterr().err
    assert not (here / "mine.toml").exists()
    assert cli.main([*own, "--client", "site", "--label", "again"]) == 0
    experiment = config.build(config.read("mine.toml"))
    assert experiment.federation.names == ("graz", "ulm")
    assert experiment.tables["data"]["label"] == "again"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere/mine.toml"], "there is no folder"),
        (["patients.csv"], "is there already"),
        (["a.toml", "--data", "cifar11"], "is no data"),
        (["a.toml", "--alpha", "-1"], "alpha must be at least 0"),
        (["a.toml", "--label", "again"], "digits is none"),
        (["a.toml", "--data", "patients.csv", "--alpha", "1"], "without owners"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(arguments, message, here, capsys):
    before = {path: path.read_bytes() for path in here.iterdir()}
    assert cli.main(["init", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert {path: path.read_bytes() for path in here.iterdir()} == before


def test_a_file_is_replaced_by_force_and_a_data_set_that_is_not_here_is_told(here, capsys):
    Path("mine.toml").write_text("mine")
    arguments = ["init", "mine.toml", "--data", "pacs", "--data-dir", str(here), "--force"]
    assert cli.main(arguments) == 0
    assert "pacs is not here yet: fedrelay data get pacs" in capsys.readouterr().err
    assert config.read("mine.toml")["data"] == {"name": "pacs"}


@posix
def test_in_a_terminal_three_questions_are_asked_and_mistakes_asked_again(monkeypatch, capsys):
    import pty

    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "r") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("fedrelay.cli.init.ERR", PlainConsole(stderr=True, force_terminal=True))
        os.write(ours, b"nothing\n\nlots\n0.5\nti\n")
        assert cli.main(["init", "asked.toml"]) == 0
    os.close(ours)
    said = capsys.readouterr().err
    assert all(f"{number}. " in said for number in (1, 2, 3))
    assert "'nothing' is no data" in said
    assert "'lots' is no number" in said
    tables = config.read("asked.toml")
    assert tables["data"] == {"name": "digits", "clients": 100, "partition": {"name": "dirichlet", "alpha": 0.5}}
    assert tables["algorithm"] == {"name": "fedavg"}
