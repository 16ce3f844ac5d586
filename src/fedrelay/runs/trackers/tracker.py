"""What other programs' logbooks get of a run: its configuration, the figures of every round, the summary."""

from __future__ import annotations

import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from fedrelay.errors import BadInput, say_once
from fedrelay.runs.claim import refuse_unless
from fedrelay.runs.costs import DIRECTIONS
from fedrelay.runs.folder import CONFIG, read_config
from fedrelay.runs.log import RoundLog, Summary
from fedrelay.runs.record import Recorder

Figures = Mapping[str, float]


class Tracker(ABC):
    """A logbook of one run. A run that goes on adds to it, and no round is in it twice."""

    @abstractmethod
    def begin(self, settings: Mapping[str, str]) -> int:
        """Open it: the last round that is in it already, or 0."""

    @abstractmethod
    def write(self, round: int, figures: Figures) -> None:
        """The figures of a round."""

    @abstractmethod
    def end(self, summary: Figures | None) -> None:
        """Close it; None: the run was stopped or has failed."""


def required(module: str, option: str, extra: str) -> Any:
    """A module of a package that is only there if it was asked for."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise BadInput(f"{option} needs a package that is not installed: pip install 'fedrelay[{extra}]'") from None


def plain(folder: Path) -> Path:
    """A folder in a run's folder that others write into; a link in its place is refused, as everywhere there."""
    refuse_unless(folder, stat.S_ISDIR, "a plain folder")
    return folder


def tracked(recorder: Recorder, trackers: Sequence[Tracker]) -> Iterator[RoundLog]:
    """The rounds of a run as they are written, each in all these logbooks before it is yielded. A logbook that cannot
    be written is given up, and the run goes on."""
    open_ones: dict[Tracker, int] = {}
    total, summary = 0, None
    try:
        for place, log in enumerate(recorder.run()):
            if not place:
                settings = dict(flat(read_config(recorder.path / CONFIG)))
                open_ones = {one: done for one in trackers if (done := safely(one, one.begin, settings)) is not None}
            total += sum(log.bytes[key] for key in DIRECTIONS)
            for one in [one for one, done in open_ones.items() if log.round > done]:
                if safely(one, one.write, log.round, figures_of(log, total), result=True) is None:
                    del open_ones[one]
            yield log
        summary = summary_of(recorder.summary())
    finally:
        for one in open_ones:
            safely(one, one.end, summary)


def safely(tracker: Tracker, call: Any, *given: Any, result: Any = None) -> Any:
    """What a logbook answers (or `result`, if it did not fail); None and a word if it cannot be written."""
    try:
        found = call(*given)
    except BadInput:
        raise
    except Exception as error:  # other people's code: whatever it raises is not worth a run
        say_once(f"{type(tracker).__name__} is given up for this run, which goes on ({type(error).__name__}: {error})")
        return None
    return found if result is None else result


# --- what is written


def figures_of(log: RoundLog, total: int) -> dict[str, float]:
    """The figures of a round by name; `total` are all bytes so far. What is not known, or not finite, is left out."""
    found: dict[str, float | None] = {
        **{f"test/{name}": value for name, value in log.metrics.items()},
        "train/loss": log.train_loss,
        **{f"clients/{name}": value for name, value in log.over_clients.items()},
        **{f"privacy/{name}": value for name, value in log.privacy.items()},
        **{f"defence/{name}": value for name, value in log.defence.items()},
        "traffic/bytes": float(sum(log.bytes[key] for key in DIRECTIONS)),
        "traffic/total_bytes": float(total),
        "traffic/messages": float(sum(log.messages[key] for key in DIRECTIONS)),
        **{
            f"round/{name}": float(getattr(log, name)) for name in ("clients", "chains", "depth", "examples", "seconds")
        },
        "round/dropped": float(len(log.drops)),
        "round/simulated_seconds": log.simulated_seconds,
    }
    return {name: value for name, value in found.items() if value is not None}


EVERY_ROUND = "round/seconds"
"""A figure that every round has."""


def summary_of(summary: Summary) -> dict[str, float]:
    """The numbers of a summary, by dotted keys."""
    found = {}
    for key, value in flat(asdict(summary)):
        with suppress(ValueError):  # texts, and what was never reached
            found[key] = float(value)
    return found


def flat(tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Tables as dotted keys and texts."""
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def named(folder: Path) -> str:
    """What a run is called: its folder, with the one above it, because seeds have folders of their own."""
    return "/".join(folder.resolve().parts[-2:])
