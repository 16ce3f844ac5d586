"""How much a command says besides its results."""

from __future__ import annotations

import argparse

from fedrelay.system.console import PlainConsole


def add(parser: argparse.ArgumentParser) -> None:
    """The option that leaves progress and remarks out."""
    parser.add_argument(
        "--quiet", "-q", action="store_true", help="no progress and no remarks: only results and errors"
    )


def console(options: argparse.Namespace) -> PlainConsole:
    """Where progress and remarks go, if anywhere."""
    return PlainConsole(stderr=True, quiet=options.quiet)
