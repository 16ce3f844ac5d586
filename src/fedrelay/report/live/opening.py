"""Open the board in a browser without showing its token to others.

A program's arguments can be read by all users of a machine. So the browser is given the name of a file that only its
owner can read, and that leads to the address.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from fedrelay.system import files

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>fedrelay board</title><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}"></head>
<body><p><a href="{address}">The board</a></p></body></html>
"""


@contextmanager
def leading_to(address: str) -> Iterator[str]:
    """The URL of a file that leads to this address; it is removed at the end."""
    with TemporaryDirectory(prefix="fedrelay-", ignore_cleanup_errors=True) as folder:  # its owner's only
        path = Path(folder).resolve() / "board.html"
        files.write(path, PAGE.format(address=html.escape(address)).encode(), mode=files.PRIVATE)
        yield path.as_uri()
