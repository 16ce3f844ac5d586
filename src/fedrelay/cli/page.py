"""The tables of docs/command-line.md, read off the parser: every command, and what exit codes mean.

`python -m fedrelay.cli.page docs/command-line.md` renews them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from fedrelay.cli.completion import parsers
from fedrelay.cli.main import parser
from fedrelay.cli.words import CODES
from fedrelay.studies.markdown import markdown_table
from fedrelay.studies.marks import filled


def content() -> dict[str, str]:
    """What stands between the marks of the page."""
    codes = [(f"`{code}`", text) for code, text in CODES.items()]
    return {
        "commands": markdown_table(("command", "what it does"), list(commands())),
        "codes": markdown_table(("code", "meaning"), codes),
    }


def commands() -> Iterator[tuple[str, str]]:
    """Every command that does something, with what it does."""
    for one in parsers(parser()):
        if one.get_default("command") is not None:
            yield f"`{' '.join([one.prog, *arguments(one)])}`", one.description or ""


def arguments(one: argparse.ArgumentParser) -> Iterator[str]:
    """What must or can follow the command, besides options."""
    for action in one._get_positional_actions():
        name = str(action.metavar or action.dest.upper())
        several = f"{name}…" if action.nargs == "+" else name
        yield f"[{several}]" if action.nargs == "?" else several


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(filled(page.read_text(encoding="utf-8"), content()), encoding="utf-8")
