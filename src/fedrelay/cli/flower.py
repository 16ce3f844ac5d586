"""The command line for Flower federations: the folder that `flwr run` reads."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedrelay import config
from fedrelay.cli import data as cli_data
from fedrelay.cli.remote import extra, listed
from fedrelay.system.console import PlainConsole

OUT = PlainConsole()


def add(parser: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    """The commands below `fedrelay flower`."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    text = "Write the folder of a Flower app that runs an experiment: `flwr run DIR` does the rest."
    making = commands.add_parser("init", help=text, description=text, parents=[shared])
    making.add_argument("file", type=Path, help="the configuration")
    making.add_argument("folder", type=Path, metavar="DIR", help="the app's folder, which must be new")
    making.add_argument("--set", action="append", default=[], metavar="A.B=C", help="override a value; can be repeated")
    text = "who takes part: the names that SuperNodes have in their --node-config"
    making.add_argument("--clients", default="", metavar="NAME,NAME", help=text)
    text = "clients bring their own data (data= in their --node-config), which is read as [data] says"
    making.add_argument("--own-data", action="store_true", help=text)
    text = "a table, a folder or arrays (.npz) at the SuperLink to test on, where clients bring theirs"
    making.add_argument("--test", default="", metavar="PATH", help=text)
    text = "the run's folder, where the SuperLink runs (default: runs/NAME, from where it was started)"
    making.add_argument("--out", default="", metavar="PATH", help=text)
    cli_data.add_folder(making)
    making.set_defaults(command=run_init)


def run_init(options: argparse.Namespace) -> int:
    with extra("flower"):
        import flwr.app  # noqa: F401 (an app that cannot run here is not written)

        from fedrelay.remote.flower import folder
    tables = config.read(options.file, options.set)
    app = folder.App(tables, listed(options.clients), own_data=options.own_data, test=options.test, out=options.out)
    app.check(options.data_dir)
    folder.write(app, options.folder)
    OUT.print(f"Wrote {options.folder}: run it with: flwr run {options.folder}", soft_wrap=True)
    return 0
