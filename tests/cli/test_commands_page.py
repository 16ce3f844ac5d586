from __future__ import annotations

from pathlib import Path

import pytest
from invented_runs import run_folder

from fedrelay import cli
from fedrelay.cli import page
from fedrelay.cli.completion import USE, parsers
from fedrelay.cli.main import parser
from fedrelay.cli.words import CODES, FAILED, FINE, WRONG
from fedrelay.studies.marks import filled
from fedrelay.system import stopping

FILE = """
rounds = 1
data = { name = "synthetic", examples = 40, test_examples = 20, shape = [4], clients = 4 }
model = { name = "mlp" }
algorithm = { name = "fedavg" }
engine = { name = "inline" }
"""


def test_the_page_is_read_off_the_parser():
    text = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert text == filled(text, page.content()), "python -m fedrelay.cli.page docs/command-line.md"
    assert USE in text


def test_what_may_run_side_by_side_can_be_quiet():
    side_by_side = [one for one in parsers(parser()) if "--jobs" in one._option_string_actions]
    assert len(side_by_side) >= 4
    assert [one.prog for one in side_by_side if "--quiet" not in one._option_string_actions] == []


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("list engines", FINE),
        ("run a.toml --quiet", FINE),
        ("diff one one", FINE),
        ("diff one two", FAILED),
        ("run a.toml --set local.lr=1e300", FAILED),  # every client's model is out of bounds
        ("run a.toml --set rounds=none", WRONG),
        ("run nowhere.toml", WRONG),
        ("report nowhere", WRONG),
    ],
)
def test_exit_codes_are_those_of_the_page(command, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("a.toml").write_text(FILE)
    for name, rounds in (("one", 4), ("two", 5)):
        run_folder(tmp_path / name, rounds=rounds)
    assert cli.main(command.split()) == code, capsys.readouterr().err
    assert code in CODES
    assert stopping.CODE in CODES  # test_stopping.py has what ends with it
