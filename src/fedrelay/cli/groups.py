"""The command line of the grouping laboratory."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedrelay import config
from fedrelay.cli import data as cli_data
from fedrelay.cli import quiet, targets
from fedrelay.studies import groupings as laboratory
from fedrelay.system.console import PlainConsole

OUT = PlainConsole()


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay groups`."""
    parser.add_argument("file", type=Path, help="a configuration; its [groups] section says what is compared")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="override a value; can be repeated")
    text = "where results.json, results.md and report.html go (default: runs/groups-NAME OF FILE)"
    parser.add_argument("--out", type=Path, help=text)
    parser.add_argument("--json", action="store_true", help="print results.json, and nothing else")
    quiet.add(parser)
    targets.add_force(parser)
    cli_data.add_folder(parser)
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    out: Path = options.out or Path("runs") / f"groups-{options.file.stem}"
    tables = config.read(options.file, options.set)
    laboratory.claim_for(tables, out, force=options.force)
    findings = laboratory.study(tables, quiet.console(options), options.data_dir)
    laboratory.write(findings, out, f"groupings of {options.file.stem}", work=laboratory.fingerprint(tables))
    if options.json:
        print((out / "results.json").read_text(encoding="utf-8"), end="")
        return 0
    OUT.print(laboratory.table(findings))
    OUT.print(f"Results are in {out}: results.md, results.json, report.html.", soft_wrap=True)
    return 0
