"""The terminal as fedrelay writes to it: names and reasons come from files, and are text whatever they contain."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""What would steer a terminal."""


class PlainConsole(Console):
    """Brackets are no markup here, and no text can move the cursor, set a title or change a colour."""

    def __init__(self, *, stderr: bool = False, force_terminal: bool | None = None) -> None:
        super().__init__(stderr=stderr, force_terminal=force_terminal, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(segment.text.translate(CONTROLS), segment.style)
