"""The command line of the papers' tables and figures."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.table import Column, Table
from rich.text import Text

from fedrelay.cli import data as cli_data
from fedrelay.cli import quiet, targets
from fedrelay.cli.compare import add_side_by_side
from fedrelay.cli.words import FAILED, WRONG
from fedrelay.errors import BadInput
from fedrelay.studies.reproduce import carry_out, dry_run, library, markdown, scales
from fedrelay.studies.reproduce.item import SCALES, Item
from fedrelay.studies.reproduce.outcome import Outcome
from fedrelay.studies.reproduce.study import Setting
from fedrelay.system.console import PlainConsole

OUT = PlainConsole()
ERR = PlainConsole(stderr=True)


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay reproduce`."""
    text = "a table or figure (fedseq/table2), a paper (fedseq), or a file of your own; without: list all"
    parser.add_argument("item", nargs="?", help=text)
    text = "paper: the paper's size; small (default): a night on two cores; smoke: seconds"
    parser.add_argument("--scale", choices=SCALES, default="small", help=text)
    text = "only panels and rows with this text in their names; can be repeated, and all must be there"
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help=text)
    add_side_by_side(parser)
    text = "where runs, results and pages go (default: runs/reproduce/PAPER/ITEM/SCALE)"
    parser.add_argument("--out", type=Path, help=text)
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and run nothing")
    quiet.add(parser)
    targets.add_force(parser)
    cli_data.add_folder(parser)
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    if options.item is None:
        OUT.print(listing(options.data_dir))
        return 0
    items = library.wanted(options.item)
    several = len(items) > 1
    if options.dry_run:
        for item in items:
            foretell(item, options, several=several)
        return 0
    if not several:
        return run_one(items[0], options, several=False)
    codes = []
    for item in items:  # what cannot be run does not keep the others from it
        try:
            codes.append(run_one(item, options, several=True))
        except BadInput as error:
            say(str(error))
            codes.append(WRONG)
    return max(codes)


def run_one(item: Item, options: argparse.Namespace, *, several: bool) -> int:
    """One item to its pages; 1 if some of its runs failed."""
    setting = Setting(quiet.console(options), options.jobs, options.data_dir, options.force, options.ray)
    out, runs = folder_of(item.name, options, several=several), shared_folder(item, options, several=several)
    done = carry_out.carry_out(item, options.scale, out, setting, only=options.only, say=say, runs=runs)
    show(done, out)
    return FAILED if done.failed else 0


def foretell(item: Item, options: argparse.Namespace, *, several: bool) -> None:
    """What would run."""
    out = shared_folder(item, options, several=several) or folder_of(item.name, options, several=several)
    planned = carry_out.plan(item, options.scale, out, only=options.only, data_dir=options.data_dir)
    for text in carry_out.lacking(item, planned, options.data_dir):
        say(text)
    OUT.print(f"{item.name}: {item.where}, {item.title}", highlight=False, soft_wrap=True)
    OUT.print(dry_run.table(dry_run.rough(item, [one for one in planned if not one.missing])))


def shared_folder(item: Item, options: argparse.Namespace, *, several: bool) -> Path | None:
    """The folder of the item whose runs these are, if they are another's."""
    shared = item.like in library.names() and (options.out is None or several)
    return folder_of(item.like, options, several=several) if shared else None


def folder_of(item: str, options: argparse.Namespace, *, several: bool) -> Path:
    """Where an item goes; with --out and several items, each below it."""
    if options.out is None:
        return Path("runs") / "reproduce" / item / str(options.scale)
    out: Path = options.out
    return out / item / str(options.scale) if several else out


def say(text: str) -> None:
    ERR.print(text, style="yellow", highlight=False, soft_wrap=True)


def show(done: Outcome, out: Path) -> None:
    """The table, the claims, and where the rest is."""
    OUT.print(markdown.document(done), highlight=False, soft_wrap=True, end="")
    OUT.print(f"Results are in {out}: table.md, results.json, page.html.", soft_wrap=True)


def listing(data_dir: Path | None) -> Table:
    """Every table and figure, and whether its data is at hand."""
    names = library.names()
    whole = Column("item", no_wrap=True, min_width=max(map(len, names)))  # to be typed, so none is cut
    table = Table(whole, "what it is", "data at hand?", title_justify="left")
    for name in names:
        (item,) = library.wanted(name)
        panels = [scales.tables_of(item, "paper", panel) for panel in scales.panels_of(item, "paper")]
        lacking = dict.fromkeys(absent for tables in panels for absent in carry_out.missing(tables, data_dir))
        here = "yes" if not lacking else f"no {', '.join(lacking)}"
        table.add_row(*map(Text, (name, f"{item.where}: {item.title}", here)))
    return table
