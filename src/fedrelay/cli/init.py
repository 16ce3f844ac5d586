"""The command line that writes a first experiment file, by three questions or from flags."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from fedrelay.cli import data as cli_data
from fedrelay.cli import targets
from fedrelay.config.federation import federate
from fedrelay.data.locate import data_folder
from fedrelay.data.sources import FILES
from fedrelay.errors import BadInput
from fedrelay.studies import first_file
from fedrelay.studies.first_file import MATTERS, Wanted
from fedrelay.system import files
from fedrelay.system.console import PlainConsole

OUT = PlainConsole()
ERR = PlainConsole(stderr=True)
TRIES = 3
T = TypeVar("T")


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay init`."""
    text = "the file to write (default: experiment.toml)"
    parser.add_argument("file", type=Path, nargs="?", default=Path("experiment.toml"), help=text)
    text = "a data set by name, a table (.csv, .tsv, .parquet), a folder of tables, or of pictures CLIENT/CLASS/PICTURE"
    parser.add_argument("--data", metavar="WHAT", help=f"{text} (default: digits)")
    text = (
        "how unlike the clients are: 0 is one class each, 100 all alike (default: owners, where there are some, or 0)"
    )
    parser.add_argument("--alpha", type=float, help=text)
    parser.add_argument("--clients", type=int, metavar="N", help="how many there are, without owners (default: 100)")
    parser.add_argument("--client", metavar="COLUMN", help="of a table: whose row it is (default: client)")
    parser.add_argument("--label", metavar="COLUMN", help="of a table: what is to be predicted (default: label)")
    text = "what there is to be little of (default: rounds)"
    parser.add_argument("--matters", choices=tuple(MATTERS), help=text)
    targets.add_force(parser)
    cli_data.add_folder(parser)
    parser.epilog = "In a terminal, what no flag says is asked for. The file that is written runs as it is."
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    path: Path = options.file
    targets.check_free(path, "another name", force=options.force)
    if not path.absolute().parent.is_dir():
        raise BadInput(f"there is no folder {path.absolute().parent}: make it first, or name a file elsewhere")
    wanted = asked(options) if sys.stdin.isatty() and ERR.is_terminal else told(options)
    remark = checked(wanted, options.data_dir)
    tables = first_file.tables_of(wanted)
    files.write(path, first_file.written(tables, wanted, path.name).encode())
    if remark:
        ERR.print(remark, style="yellow", highlight=False, soft_wrap=True)
    said = f"{tables['algorithm']['name']} on {wanted.data}, for {MATTERS[wanted.matters]}"
    OUT.print(f"Wrote {path} ({said}): run it with: fedrelay run {path}", highlight=False, soft_wrap=True)
    return 0


def told(options: argparse.Namespace) -> Wanted:
    """What the flags say, and the defaults."""
    known = {name: getattr(options, name) for name in ("alpha", "client", "label", "clients")}
    wanted = Wanted(options.data or Wanted.data, matters=options.matters or Wanted.matters, **known)
    refuse_unused(wanted)
    return wanted


def refuse_unused(wanted: Wanted) -> None:
    """A flag that would say nothing of this data is a mistake."""
    column = next((name for name in ("client", "label") if getattr(wanted, name) is not None), None)
    if column and wanted.name != "table":
        raise BadInput(f"--{column} names a column of a table, but {wanted.data} is none")
    number = next((name for name in ("alpha", "clients") if getattr(wanted, name) is not None), None)
    if number and wanted.own:
        raise BadInput(f"--{number} is for data without owners; the clients of {wanted.data} are those it belongs to")


def asked(options: argparse.Namespace) -> Wanted:
    """The three questions, as far as no flag has answered them."""
    if options.data is None:
        text = "1. Which data? A name of `fedrelay data list`, or the path of your table or folder"
        options.data = question(text, Wanted.data, lambda answer: Wanted(answer).name and answer)
    wanted = told(options)
    if wanted.name == "table":
        if options.client is None and not Path(wanted.data).is_dir():
            wanted = replace(wanted, client=question("2. Which column says whose row it is?", "client", str))
        if options.label is None:
            wanted = replace(wanted, label=question("   Which column is to be predicted?", "label", str))
    elif options.alpha is None and not wanted.own:
        natural = wanted.unlike is None
        text = "2. How unlike are the clients? alpha: 0 is one class each, 1 half alike, 100 all alike"
        alpha = question(text, "owners" if natural else "0", lambda answer: read_alpha(answer, natural=natural))
        wanted = replace(wanted, alpha=alpha)
    if options.matters is None:
        text = f"3. What is scarce? {', '.join(MATTERS)}"
        wanted = replace(wanted, matters=question(text, Wanted.matters, read_matters))
    return wanted


def read_alpha(answer: str, *, natural: bool) -> float | None:
    if natural and answer == "owners":
        return None
    try:
        alpha = float(answer)
    except ValueError:
        raise BadInput(f"{answer!r:.50} is no number: 0, 0.1, 1 or 100, for example") from None
    if not 0 <= alpha < float("inf"):
        raise BadInput(f"alpha must be at least 0, not {answer:.50}")
    return alpha


def read_matters(answer: str) -> first_file.Matters:
    found = next((one for one in MATTERS if one.startswith(answer.lower())), None)
    if found is None:
        raise BadInput(f"{answer!r:.50} is none of {', '.join(MATTERS)}")
    return found


def question(text: str, default: str, read: Callable[[str], T]) -> T:
    """The answer, asked for again if it cannot be; nothing is the default."""
    for left in reversed(range(TRIES)):
        ERR.print(f"{text} [{default}]: ", end="", highlight=False, soft_wrap=True)
        try:
            return read((sys.stdin.readline() or "\n").strip() or default)
        except BadInput as error:
            if not left:
                raise
            ERR.print(str(error), style="red", highlight=False, soft_wrap=True)
    raise AssertionError


def checked(wanted: Wanted, data_dir: Path | None) -> str:
    """Whether the data can be read: own data that cannot is refused, a data set that is not here yet is told."""
    if wanted.name in FILES:
        here = FILES[wanted.name].present(data_folder(data_dir))
        return "" if here else f"{wanted.name} is not here yet: fedrelay data get {wanted.name}"
    federate(first_file.tables_of(wanted)["data"], 0, data_dir)
    return ""
