"""The files that a command is to write: what is there already is not overwritten unless it is asked for."""

from __future__ import annotations

import argparse
import stat
from pathlib import Path

from fedrelay.errors import BadInput


def add_force(parser: argparse.ArgumentParser) -> None:
    """The option that lets a file be replaced."""
    parser.add_argument("--force", action="store_true", help="replace files that are there already")


def check_free(path: Path, option: str, *, force: bool) -> None:
    """Refuse a file that is there already. With `force` a plain file may be: never a folder, a link or a device."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):  # the second is refused when it is written
        return
    except (OSError, ValueError) as error:
        raise BadInput(f"{option}: {str(path)!r:.300} cannot be a file ({reason(error)})") from None
    if stat.S_ISDIR(found.st_mode):
        raise BadInput(f"{path} is a folder: name a file to write with {option}, for example {path / 'new'}")
    if not stat.S_ISREG(found.st_mode):
        raise BadInput(f"{path} is not a plain file, and nothing else is replaced: name another with {option}")
    if not force:
        raise BadInput(f"{path} is there already; nothing was overwritten: name another with {option}, or add --force")


def reason(error: Exception) -> str:
    """What the system says of a path."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
