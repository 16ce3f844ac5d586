"""The terminal as fedrelay writes to it: names and reasons come from files, and are text whatever they contain."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""What would steer a terminal."""


class PlainLines(logging.Formatter):
    """Lines of a log, each of which is one, without what a terminal would obey: some of it was said by others."""

    LONGEST = 2000

    def format(self, record: logging.LogRecord) -> str:
        text = " | ".join(line for line in super().format(record).splitlines() if line)
        plain = "".join(letter if letter.isprintable() else "?" for letter in text[: self.LONGEST])
        return plain if len(text) <= self.LONGEST else plain[:-1] + "…"


class PlainConsole(Console):
    """Brackets are no markup here, and no text can move the cursor, set a title or change a colour."""

    def __init__(self, *, stderr: bool = False, force_terminal: bool | None = None, quiet: bool = False) -> None:
        super().__init__(stderr=stderr, force_terminal=force_terminal, quiet=quiet, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(segment.text.translate(CONTROLS), segment.style)
