"""The command line that examines this machine."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from rich.text import Text

from fedrelay.cli import data as cli_data
from fedrelay.cli.words import FAILED, FINE
from fedrelay.studies.doctor import Finding, examine
from fedrelay.system.console import PlainConsole

OUT = PlainConsole()
WIDTH = 26
"""Of the names, so that what was found is lined up."""


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay doctor`."""
    parser.add_argument("--no-self-test", action="store_true", help="only look, without the tiny runs")
    parser.add_argument("--json", action="store_true", help="for machines")
    cli_data.add_folder(parser)
    parser.epilog = "The exit code is 0 if fedrelay can work here, 1 if something is wrong. Missing extras are not."
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    found, topic = list[Finding](), ""
    for finding in examine(options.data_dir, test=not options.no_self_test):
        found.append(finding)
        if options.json:
            continue
        if finding.topic != topic:
            topic = finding.topic
            OUT.print(topic, style="bold", highlight=False)
        OUT.print(line(finding), soft_wrap=True)
    wrong = [finding for finding in found if finding.wrong]
    if options.json:
        print(json.dumps({"fine": not wrong, "findings": list(map(asdict, found))}, indent=2))
    else:
        verdict = f"wrong: {', '.join(one.name for one in wrong)}" if wrong else "fedrelay can work here"
        OUT.print(verdict, style="bold red" if wrong else "bold green", highlight=False, soft_wrap=True)
    return FAILED if wrong else FINE


def line(finding: Finding) -> Text:
    """What was found, and what to do."""
    style = "red" if finding.wrong else "yellow" if finding.remedy else ""
    sign = "✗" if finding.wrong else "·" if finding.remedy else "✓"
    text = Text(f"  {sign} {finding.name:<{WIDTH}} ") + Text(finding.found, style=style)
    return text + Text(f"\n    {'':<{WIDTH}} {finding.remedy}", style="dim") if finding.remedy else text
