"""The command line that completes itself: a script for the user's shell, made from the parser once and for all.

Nothing is started when a key is pressed, so it is as quick as the shell; after an update the script is written anew.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import shtab

from fedrelay.data.sources import FILES
from fedrelay.studies.reproduce import library

SHELLS = ("bash", "zsh", "fish")
USE = """\
  bash:  fedrelay completion bash > ~/.local/share/bash-completion/completions/fedrelay
  zsh:   fedrelay completion zsh > ~/.zfunc/_fedrelay    (a folder of your $fpath)
  fish:  fedrelay completion fish > ~/.config/fish/completions/fedrelay.fish"""

NAMES: dict[tuple[str, str], Callable[[], list[str]]] = {
    ("fedrelay reproduce", "item"): lambda: [*library.names(), *dict.fromkeys(map(paper, library.names()))],
    ("fedrelay data get", "name"): lambda: list(FILES),
    ("fedrelay data show", "what"): lambda: list(FILES),
}
"""Arguments (by command and name) that are one of these names, although other texts are taken too."""


def add(parser: argparse.ArgumentParser, root: argparse.ArgumentParser) -> None:
    """The options of `fedrelay completion`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"Write it where your shell looks for it, then open a new shell:\n{USE}"
    parser.add_argument("shell", choices=SHELLS, help="the shell to write for")
    parser.set_defaults(command=lambda options: run(options, root))


def run(options: argparse.Namespace, root: argparse.ArgumentParser) -> int:
    print(script(root, options.shell))
    return 0


def script(root: argparse.ArgumentParser, shell: str) -> str:
    """What the shell is to read; the parser is spoiled for anything else."""
    for parser in parsers(root):
        for action in parser._actions:
            names = NAMES.get((parser.prog, action.dest))
            if names is not None:
                action.choices = names()
            elif action.type is Path:
                action.complete = files(action)  # type: ignore[attr-defined]
    return shtab.complete(root, shell)


def parsers(root: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser and all below it."""
    yield root
    for action in root._actions:
        if isinstance(action, argparse._SubParsersAction):
            for parser in dict.fromkeys(action.choices.values()):
                yield from parsers(parser)


def files(action: argparse.Action) -> Any:
    """What a path can be: a configuration, a folder, or any file."""
    if action.dest == "file":
        return shtab.glob("*.toml")
    return shtab.DIRECTORY if action.metavar in ("DIR", "OUTDIR") else shtab.FILE


def paper(item: str) -> str:
    """Of a table or figure."""
    return item.partition("/")[0]
