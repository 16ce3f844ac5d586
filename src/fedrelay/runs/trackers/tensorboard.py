"""TensorBoard: event files in the run's folder. `tensorboard --logdir runs` finds those of all runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrelay.runs.trackers.tracker import EVERY_ROUND, Figures, Tracker, plain, required

FOLDER = "tensorboard"


class TensorBoard(Tracker):
    """Scalars by round; the configuration is a text."""

    def __init__(self, folder: Path) -> None:
        self._writers = required("torch.utils.tensorboard", "--tensorboard", "tensorboard")
        self._folder = plain(folder / FOLDER)
        self._writer: Any = None
        self._last = 0

    def begin(self, settings: Mapping[str, str]) -> int:
        self._last = last_round(self._folder)
        self._writer = self._writers.SummaryWriter(str(self._folder), flush_secs=10)
        if not self._last:
            lines = "\n".join(f"| {key} | {value.replace('|', ' ')} |" for key, value in settings.items())
            self._writer.add_text("configuration", f"| key | value |\n|---|---|\n{lines}", 0)
        return self._last

    def write(self, round: int, figures: Figures) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, round)
        self._last = round

    def end(self, summary: Figures | None) -> None:
        if summary:
            text = "\n".join(f"| {name} | {value:g} |" for name, value in summary.items())
            self._writer.add_text("summary", f"| figure | value |\n|---|---|\n{text}", self._last)
        self._writer.close()


def last_round(folder: Path) -> int:
    """The last round that event files have; one that was cut off is read as far as it goes."""
    loader = required("tensorboard.backend.event_processing.event_file_loader", "--tensorboard", "tensorboard")
    steps = [0]
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for event in loader.EventFileLoader(str(path)).Load():
            steps += [event.step for value in event.summary.value if value.tag == EVERY_ROUND]
    return max(steps)
