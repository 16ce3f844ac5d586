"""How long all of a work will take, where bars only know of the part that is being done: a line to show below them."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.text import Text

from fedrelay.report.measures import duration


class TimeLeft:
    """So much of it is done, and the rest will take as long at the pace so far.

    Args:
        unit: What it is counted in, such as "runs".
        total: How many there are.
        clock: Seconds since some moment.
    """

    def __init__(self, unit: str, total: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.unit, self.total, self.done, self._clock = unit, total, 0, clock
        self._began = self._last = clock()

    def at(self, done: int) -> None:
        """So many are done by now; fewer than before are those before."""
        if done > self.done:
            self.done, self._last = done, self._clock()

    @property
    def seconds(self) -> float | None:
        """Until the end; None as long as nothing is done."""
        if not self.done:
            return None
        pace = (self._last - self._began) / self.done
        return max(pace * (self.total - self.done) - (self._clock() - self._last), 0.0)

    def __rich__(self) -> Text:
        left = "" if self.seconds is None else f", about {duration(self.seconds)} left"
        return Text(f"all: {self.done} of {self.total} {self.unit}{left}", style="dim")
