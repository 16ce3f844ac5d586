"""The command line for two configurations: in what they differ."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from fedrelay.cli import data as cli_data
from fedrelay.cli.words import FAILED, FINE
from fedrelay.studies.differing import differing, tables_of
from fedrelay.system.console import PlainConsole

OUT = PlainConsole()
ERR = PlainConsole(stderr=True)
WIDEST = 50
"""So many characters of a key or a value are lined up with the others."""
STYLES = ("bold", "red", "green")


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay diff`."""
    parser.add_argument("one", type=Path, metavar="A", help="a configuration, or a run's folder")
    parser.add_argument("other", type=Path, metavar="B", help="another")
    text = "compare files as they are written, without the defaults that they leave unsaid"
    parser.add_argument("--as-written", action="store_true", help=text)
    parser.add_argument("--json", action="store_true", help="for machines: every key with both values")
    cli_data.add_folder(parser)
    parser.epilog = "The exit code is 0 if they are the same, 1 if they differ, 2 if one cannot be read."
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    paths = options.one, options.other
    one, other, remarks = tables_of(paths, as_written=options.as_written, data_dir=options.data_dir)
    for text in remarks:
        ERR.print(text, style="yellow", highlight=False, soft_wrap=True)
    found = differing(one, other)
    if options.json:
        print(json.dumps({each.key: [json.loads(text or "null") for text in each.values] for each in found}, indent=2))
    elif found:
        for line in lines([("", str(options.one), str(options.other)), *(each.texts for each in found)]):
            OUT.print(line, soft_wrap=True)
    else:
        OUT.print(f"{paths[0]} and {paths[1]} say the same", highlight=False, soft_wrap=True)
    return FAILED if found else FINE


def lines(rows: Sequence[tuple[str, str, str]]) -> list[Text]:
    """Key and values in columns; nothing is cut off, so that all of it can be copied."""
    widths = [min(max(len(row[place]) for row in rows), WIDEST) for place in range(3)]
    return [
        Text("  ").join(
            Text(cell if place == 2 else cell.ljust(width), style=style)
            for place, (cell, width, style) in enumerate(zip(row, widths, STYLES, strict=True))
        )
        for row in rows
    ]
