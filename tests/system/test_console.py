"""What is written to a terminal: text, whatever it contains."""

from __future__ import annotations

import pytest
from rich.table import Table
from rich.text import Text

from fedrelay.system.console import PlainConsole


@pytest.mark.parametrize(
    "hostile", ["\x1b[31mred", "\x1b]0;title\x07", "\x1b[2J\x1b[H", "\x9b31m", "a\x08b\x7f", "[/]"]
)
def test_texts_cannot_steer_the_terminal_wherever_they_are_shown(
    hostile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    console = PlainConsole()
    table = Table(hostile, title=hostile)
    table.add_row(hostile)
    table.add_row(Text(hostile))
    for shown in (hostile, Text(hostile), table):
        console.print(shown, style="bold")
    said = capsys.readouterr().out
    assert not {"\x1b", "\x9b", "\x07", "\x08", "\x7f"} & set(said)
    assert said.count(hostile.translate(dict.fromkeys([*range(32), *range(127, 160)]))) == 6


def test_colours_of_our_own_still_reach_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    PlainConsole(force_terminal=True).print("late", style="red")
    assert capsys.readouterr().out.startswith("\x1b[31m")


def test_lines_and_columns_stay_where_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    PlainConsole().print("one\ntwo [3]")
    assert capsys.readouterr().out == "one\ntwo [3]\n"
