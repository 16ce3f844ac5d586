"""The command line: a few lines around the library."""

from __future__ import annotations

import argparse
import atexit
import json
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from fedrelay import __version__, config, report
from fedrelay.cli import advise as cli_advise
from fedrelay.cli import compare as cli_compare
from fedrelay.cli import completion as cli_completion
from fedrelay.cli import data as cli_data
from fedrelay.cli import diff as cli_diff
from fedrelay.cli import doctor as cli_doctor
from fedrelay.cli import flower as cli_flower
from fedrelay.cli import groups as cli_groups
from fedrelay.cli import init as cli_init
from fedrelay.cli import leaks as cli_leaks
from fedrelay.cli import live as cli_live
from fedrelay.cli import model as cli_model
from fedrelay.cli import quiet, targets
from fedrelay.cli import recovery as cli_recovery
from fedrelay.cli import remote as cli_remote
from fedrelay.cli import report as cli_report
from fedrelay.cli import reproduce as cli_reproduce
from fedrelay.cli.words import Parser, shortened, told
from fedrelay.config import catalogue, extensions
from fedrelay.report.progress import follow
from fedrelay.studies import demo
from fedrelay.system import stopping
from fedrelay.system.console import PlainConsole
from fedrelay.system.stopping import stoppable
from fedrelay.system.streams import Unwritable, guarded

OUT = PlainConsole()
ERR = PlainConsole(stderr=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 is success, 1 a run that failed, 2 bad input, 130 stopped by hand."""
    program = argv is None
    with stoppable(for_good=program), guarded():
        try:
            code = carried_out(argv)
        except KeyboardInterrupt:
            code = stopping.CODE
    if program and code == stopping.CODE:
        atexit._run_exitfuncs()  # workers and their memory go; threads that compute for nobody are not waited for
        os._exit(code)
    return code


def carried_out(argv: Sequence[str] | None) -> int:
    """The exit code of a command, with one line for whatever has gone wrong."""
    options = argparse.Namespace(debug=False)
    try:
        options = parsed(argv)
        catalogue.extend()
        code: int = options.command(options)
        flush()
        return code
    except KeyboardInterrupt:
        say("stopped")
        return stopping.CODE
    except Unwritable as error:
        if not error.gone:  # whoever had read enough knows that it did
            say(f"the output could not be written ({error}); what is in files is whole")
        return 1
    except Exception as error:
        if options.debug:
            traceback.print_exc()
            return told(error)[1]
        message, code = told(error)
        say(message)
        return code


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options; where help was asked for, it is printed and the program ends."""
    try:
        return parser().parse_args(argv)
    except SystemExit:
        flush()
        raise


def flush() -> None:
    """A full disk is noticed now, and not when it is too late to say so."""
    if sys.stdout is not None:
        sys.stdout.flush()


def say(message: str) -> None:
    ERR.print(shortened(f"fedrelay: {message}"), style="red", highlight=False, soft_wrap=True)


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    root = Parser(prog="fedrelay", description="Federated learning on unlike clients: who trains after whom.")
    root.add_argument("--version", action="version", version=f"fedrelay {__version__}")
    shared = Parser(add_help=False)
    shared.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = root.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, parents=[shared])

    go = command("run", "Run the experiment of a TOML file.")
    go.add_argument("file", type=Path, help="the configuration")
    go.add_argument("--set", action="append", default=[], metavar="A.B=C", help="override a value; can be repeated")
    go.add_argument("--out", type=Path, help="the run's folder (default: runs/ALGORITHM-HASH)")
    go.add_argument("--resume", action="store_true", help="go on with a run that was stopped, to the same bits")
    go.add_argument("--other-device", action="store_true", help="go on, though the run began on another device")
    go.add_argument("--json", action="store_true", help="print the summary as JSON, and nothing else")
    quiet.add(go)
    cli_live.add_logbooks(go)
    cli_data.add_folder(go)
    go.set_defaults(command=run)

    show = command("demo", "Compare fedavg, fedcyclic and fedseq on real digits, one class per client.")
    show.add_argument("--out", type=Path, default=Path("runs/demo"), help="where the runs and report.html go")
    quiet.add(show)
    targets.add_force(show)
    show.set_defaults(command=run_demo)

    listing = command("list", "List what there is, with parameters and defaults.")
    listing.add_argument("kind", nargs="?", choices=sorted(catalogue.KINDS), help="default: everything")
    listing.add_argument("--json", action="store_true", help="for machines")
    listing.set_defaults(command=run_list)

    cli_advise.add(command("advise", "Say which method to try first on a federation, and why; --race finds out."))

    cli_compare.add_compare(command("compare", "Do the runs of a TOML file side by side, with a table and a page."))
    cli_compare.add_tune(command("tune", "Try several learning rates (or other values), hopeless ones not for long."))

    cli_groups.add(command("groups", "Build and compare groupings of the clients, without training."))

    cli_reproduce.add(command("reproduce", "Run a table or figure of a paper, with the paper's numbers beside ours."))

    cli_data.add(command("data", "List, fetch and look at data sets."), shared)

    cli_live.add_watch(command("watch", "Watch runs that go on elsewhere, in this terminal."))
    cli_live.add_board(command("board", "Show runs on a page of this machine: curves, chains, stop and resume."))

    cli_report.add(command("report", "Draw one self-contained HTML page from run folders."))

    cli_model.add_export(command("export", "Write the model of a finished run for use elsewhere."))
    cli_model.add_features(command("features", "Draw the features of test examples under the model of finished runs."))
    cli_recovery.add(command("recovery", "Measure how near the images of an attacker come to others' (FID)."))
    cli_leaks.add_membership(command("membership", "Measure who can tell which examples a client has trained on."))
    cli_leaks.add_inversion(command("inversion", "Make a client's examples again from the models around its visit."))
    cli_model.add_predict(command("predict", "Predict with the model of a finished run."))
    cli_remote.add_serve(command("serve", "Run the experiment of a TOML file with real clients: this is their server."))
    cli_remote.add_keys(command("keys", "Make, list, revoke and renew the keys of a server and its clients."), shared)
    cli_remote.add_join(command("join", "Take part in a run as a client, with data that stays here."))
    cli_flower.add(command("flower", "Run an experiment on a Flower federation."), shared)
    cli_init.add(command("init", "Write a commented experiment file, by three questions or from flags."))
    cli_doctor.add(command("doctor", "Say what fedrelay finds here, what is missing, and whether it works."))
    cli_diff.add(command("diff", "Show in what two configurations, or the runs in two folders, differ."))
    cli_completion.add(command("completion", "Print a script by which a shell completes these commands."), root)
    return root


def run(options: argparse.Namespace) -> int:
    logbooks = cli_live.logbooks(options)
    experiment = config.build(config.read(options.file, options.set), options.data_dir)
    recorder = experiment.record(options.out, resume=options.resume, other_device=options.other_device)
    try:
        follow(recorder, quiet.console(options), logbooks=logbooks)
    except KeyboardInterrupt:
        say(f"stopped; the run is safe in {recorder.path}: the same command with --resume goes on from there")
        return 130
    if options.json:
        print(json.dumps(asdict(recorder.summary()), indent=2))
    else:
        done = report.load(recorder.path)
        OUT.print(report.table([done]))
        OUT.print(report.one_line(done), highlight=False, soft_wrap=True)
        OUT.print(f"Results are in {recorder.path}; see them with: fedrelay report {recorder.path}", soft_wrap=True)
    return 0


def run_demo(options: argparse.Namespace) -> int:
    if not any(options.out.glob("*/centralized")):  # the demonstration's own page is drawn anew
        targets.check_free(options.out / "report.html", "--out", force=options.force)
    page = demo.run(options.out, OUT, quiet.console(options))
    OUT.print(f"The report is {page.resolve()}: open it in a browser.", soft_wrap=True)
    return 0


def run_list(options: argparse.Namespace) -> int:
    kinds = [options.kind] if options.kind else list(catalogue.KINDS)
    if options.json:
        found = {kind: catalogue.entries(kind) for kind in kinds}
        print(json.dumps(found[options.kind] if options.kind else found, indent=2))
    else:
        for kind in kinds:
            OUT.print(catalogue.table(kind))
        for text in extensions.unknown_kinds():
            say(text)
    return 0
