"""The two ways things go wrong: what was asked for cannot be, or a run could not go on; and what is worth a warning."""

from __future__ import annotations

import logging
import math

__all__ = ["BadInput", "Diverged", "RunFailed", "within"]


class BadInput(ValueError):
    """What the caller asked for is impossible; the message says why and what would work (exit code 2)."""


class RunFailed(RuntimeError):
    """A run had to stop; the message names round, clients and reasons; the last good state is kept (exit code 1)."""


class Diverged(RunFailed):
    """A run had to stop because its models did not stay finite, or exploded: nothing around it failed."""


class DroppedClients(UserWarning):
    """Clients were lost in a run, which goes on without them; said once a run (commands name them)."""


LARGEST = 2**63 - 1
"""The largest whole number that arrays and files take."""


def within(
    name: str, value: float, *, above: float | None = None, least: float | None = None, most: float | None = None
) -> None:
    """Refuse a number outside its range (or not a number at all), naming it, the range and what was given."""
    ok = (above is None or value > above) and (least is None or value >= least) and (most is None or value <= most)
    if isinstance(value, int) and abs(value) > LARGEST:
        raise BadInput(f"{name} must be a number below {LARGEST:.1g}, not one of {value.bit_length()} bits")
    if not ok or not math.isfinite(value):
        limits = [("above", above), ("at least", least), ("at most", most)]
        wanted = " and ".join(f"{word} {limit:g}" for word, limit in limits if limit is not None) or "a finite number"
        raise BadInput(f"{name} must be {wanted}, not {value:g}")


SAID = set[str]()
"""What this process has said."""


def say_once(text: str, *, who: str = "") -> None:
    """Tell whoever reads the log of this process, and do not repeat it, not even of somebody else."""
    if text not in SAID:
        SAID.add(text)
        logging.getLogger("fedrelay").warning("%s%s%s", who, text, " (said once; others may follow)" if who else "")
