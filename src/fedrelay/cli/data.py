"""The command line for data: what there is, how to get it, and what a split looks like before any training."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.table import Table

from fedrelay import config
from fedrelay.cli import quiet, targets
from fedrelay.config import schema
from fedrelay.config.federation import DATA, federate
from fedrelay.data import Federation, describe, heatmap, rendered, save_split
from fedrelay.data.download import get
from fedrelay.data.locate import data_folder
from fedrelay.data.sources import FILES
from fedrelay.system.console import PlainConsole

OUT = PlainConsole()


def add_folder(parser: argparse.ArgumentParser) -> None:
    """The option that says where data sets lie."""
    text = "where data sets lie (default: FEDRELAY_DATA, or this platform's cache folder)"
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help=text)


def add(parser: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    """The commands below `fedrelay data`."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text, parents=[shared])
        add_folder(made)
        return made

    listing = command("list", "List the data sets that can be read by name, and which are here.")
    listing.add_argument("--json", action="store_true", help="for machines")
    listing.set_defaults(command=run_list)

    getting = command("get", "Download a data set from its publisher, checked and unpacked.")
    getting.add_argument("name", help="as `fedrelay data list` shows it")
    quiet.add(getting)
    getting.set_defaults(command=run_get)

    show = command("show", "Show a split: label mix per client, sizes, how unlike the clients are.")
    show.add_argument("what", help="a data set's name, or a TOML file with a [data] section")
    show.add_argument(
        "--set", action="append", default=[], metavar="A=C", help="a value of [data], as partition.alpha=0.1"
    )
    show.add_argument("--seed", type=int, help="of the split (default: the file's, or 0)")
    show.add_argument(
        "--picture", type=Path, metavar="PNG", help="draw the label mix as a heat map (default: split.png)"
    )
    show.add_argument("--save", type=Path, metavar="NPZ", help="save the split")
    show.add_argument("--json", action="store_true", help="print the figures as JSON, and draw only with --picture")
    targets.add_force(show)
    show.set_defaults(command=run_show)


def run_list(options: argparse.Namespace) -> int:
    folder = data_folder(options.data_dir)
    rows = [
        {"name": entry.name, "about": entry.about, "classes": entry.classes, "here": entry.present(folder)}
        for entry in FILES.values()
    ]
    if options.json:
        print(json.dumps({"folder": str(folder), "data": rows}, indent=2))
        return 0
    table = Table("name", "what it is", "classes", "here?", title=f"data sets in {folder}", title_justify="left")
    for row in rows:
        table.add_row(str(row["name"]), str(row["about"]), str(row["classes"]), "yes" if row["here"] else "")
    OUT.print(table)
    others = ", ".join(name for name in DATA if name not in FILES)
    OUT.print(f"Also by name: {others}. `fedrelay list data` shows their options.", soft_wrap=True)
    return 0


def run_get(options: argparse.Namespace) -> int:
    folder = get(options.name, options.data_dir, console=quiet.console(options))
    OUT.print(f"{options.name} is in {folder}", soft_wrap=True)
    return 0


def run_show(options: argparse.Namespace) -> int:
    for path, option in ((options.picture, "--picture"), (options.save, "--save")):
        if path is not None:
            targets.check_free(path, option, force=options.force)
    named: config.Tables = {"data": {"name": options.what}}
    tables = config.read(options.what) if options.what.endswith(".toml") else named
    values = config.override(config.section_of(tables, "data"), options.set)
    seed = options.seed if options.seed is not None else schema.convert(tables.get("seed", 0), int, "seed")
    federation, resolved = federate(values, seed, options.data_dir)
    if options.json:
        print(json.dumps({"data": resolved, **describe(federation)}, indent=2))
    else:
        OUT.print(rendered(federation))
    picture, remark = picture_of(federation, options)
    if picture:
        heatmap(federation, picture)
    if options.save:
        save_split(federation, options.save)
    if not options.json:
        written = " and ".join(str(path) for path in (picture, options.save) if path)
        OUT.print(f"Wrote {written or 'nothing'}{remark}", soft_wrap=True)
    return 0


def picture_of(federation: Federation, options: argparse.Namespace) -> tuple[Path | None, str]:
    """Where to draw the label mix, if anywhere, and why not; a picture that nobody asked for replaces nothing."""
    if not federation.source.train.classified:
        return None, ": these targets have no label mix to draw"
    if options.picture or options.json:
        return options.picture, ""
    usual = Path("split.png")
    if usual.exists() and not options.force:
        return None, f"; {usual} is there already (--force replaces it, --picture names another)"
    return usual, ""
