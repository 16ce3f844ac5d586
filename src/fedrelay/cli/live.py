"""The command line for runs that go on elsewhere: watch them in the terminal, or on a page."""

from __future__ import annotations

import argparse
import json
import webbrowser
from contextlib import ExitStack
from pathlib import Path

from fedrelay.cli import data as cli_data
from fedrelay.errors import within
from fedrelay.report.live import facts, server, terminal
from fedrelay.report.live.opening import leading_to
from fedrelay.report.live.server import PORT
from fedrelay.runs.following import FAILED
from fedrelay.runs.trackers import TRACKERS, trackers
from fedrelay.system.console import PlainConsole

OUT = PlainConsole()


def add_watch(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay watch`."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="a run's folder, or one with runs in it")
    parser.add_argument("--once", action="store_true", help="say how things are now, and end")
    parser.add_argument("--json", action="store_true", help="print it once, for machines")
    parser.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="between two looks (default: 1)")
    parser.set_defaults(command=run_watch)


def add_logbooks(parser: argparse.ArgumentParser) -> None:
    """The options that write rounds for other programs too; nothing is sent by any of them."""
    text = "also write event files into tensorboard/ in the run's folder (fedrelay[tensorboard])"
    parser.add_argument("--tensorboard", action="store_true", help=text)
    text = "also write into MLflow's store of files mlruns/ in this folder (fedrelay[mlflow])"
    parser.add_argument("--mlflow", action="store_true", help=text)
    text = "also write wandb/ in the run's folder, for `wandb sync` (fedrelay[wandb])"
    parser.add_argument("--wandb", choices=["offline"], help=text)


def logbooks(options: argparse.Namespace) -> list[str]:
    """Those that were asked for; a package that is missing is told before anything is built."""
    found = [name for name in TRACKERS if getattr(options, name)]
    trackers(found, Path())
    return found


def add_board(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay board`."""
    text = "where runs are looked for, also in the folders below it (default: runs)"
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs"), metavar="DIR", help=text)
    text = f"of this machine's own address; 0 takes any that is free (default: {PORT})"
    parser.add_argument("--port", type=int, default=PORT, help=text)
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    cli_data.add_folder(parser)
    parser.set_defaults(command=run_board)


def run_board(options: argparse.Namespace) -> int:
    within("--port", options.port, least=0, most=65535)
    with server.serve(options.folder, port=options.port, data_dir=options.data_dir) as serving, ExitStack() as until:
        OUT.print(f"The board of {options.folder} is at {serving.address}", highlight=False, soft_wrap=True)
        OUT.print("Only this machine reaches it, with this address. Ctrl-C ends it; runs go on.", highlight=False)
        if options.open:
            webbrowser.open(until.enter_context(leading_to(serving.address)))
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


def run_watch(options: argparse.Namespace) -> int:
    within("--every", options.every, least=0.1, most=3600)
    if options.once or options.json:
        found = terminal.once(options.folder)
        if options.json:
            print(json.dumps([facts.facts(glance) for glance in found], indent=2))
        else:
            OUT.print(terminal.shown(found, options.folder))
    else:
        try:
            found = terminal.watch(options.folder, OUT, every=options.every)
        except KeyboardInterrupt:  # only the watching ends
            return 0
    return 1 if any(glance.status == FAILED for glance in found) else 0
