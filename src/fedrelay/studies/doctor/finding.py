"""What was found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One fact about this machine.

    Args:
        topic: What it is about: `versions`, `machine`, `bits`, `data`, `extras`, `cache`, `self-test`, `devices`.
        name: Which fact of the topic.
        found: What was found, in words.
        remedy: What would help, if something is missing or wrong.
        wrong: Whether fedrelay does not work as it should; what only could be there is not wrong.
    """

    topic: str
    name: str
    found: str
    remedy: str = ""
    wrong: bool = False
