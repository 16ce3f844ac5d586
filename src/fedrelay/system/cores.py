"""How many cores are really ours: those that the process may run on, as far as its container lets it use their time."""

from __future__ import annotations

import os
import re
from pathlib import Path

CORES = "FEDRELAY_CORES"
"""Says how many cores a program may use where it should leave some to others, such as runs beside it."""
NUMBER = re.compile("[1-9][0-9]{0,3}")
GROUPS, MEMBER = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
"""Where Linux says what a container, or another group of processes, may use, and in which groups this process is."""


def told() -> str:
    """What the user says, as it is; empty if nothing."""
    return os.environ.get(CORES, "")


def usable() -> int:
    """As many as the user says, or else as there are for us; what is no number counts as nothing said."""
    return int(told()) if NUMBER.fullmatch(told()) else available()


def available(groups: Path = GROUPS, member: Path = MEMBER) -> int:
    """As many as the process may run on, but no more than the quota of its container is worth, rounded; at least one.

    With a quota of one core and a half, two processes get more done than one; with one and a quarter, they mostly wait.
    """
    quota = processor_quota(groups, member)
    return affinity() if quota is None else max(min(affinity(), int(quota + 0.5)), 1)


def affinity() -> int:
    """How many the process may run on."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def processor_quota(groups: Path = GROUPS, member: Path = MEMBER) -> float | None:
    """So many cores' time all processes of the container may use together; None if there is no limit.

    The limit may be that of any group around ours. From inside a container its own group looks like the root, whatever
    the name by which the system knows it.
    """
    found = [limit for folder in folders(groups, member) if (limit := quota_in(folder)) is not None]
    return min(found, default=None)


def folders(groups: Path, member: Path) -> list[Path]:
    """Of all groups that this process is in, from the inside out, in both versions of control groups."""
    found: list[Path] = []
    roots = {groups, groups / "cpu", groups / "cpu,cpuacct"}
    for line in lines(member):
        _, kinds, path = [*line.split(":", 2), "", ""][:3]
        if kinds and "cpu" not in kinds.split(","):
            continue
        inside = Path(path.lstrip("/"))
        if ".." in inside.parts:  # a group outside of what this container sees
            continue
        for root in roots if kinds else {groups}:
            found += [root / part for part in (inside, *inside.parents)]
    return list(dict.fromkeys([*found, *sorted(roots)]))


def quota_in(folder: Path) -> float | None:
    """What one group allows: `cpu.max`, or in the first version two files."""
    quota = words(folder / "cpu.max") or [*words(folder / "cpu.cfs_quota_us"), *words(folder / "cpu.cfs_period_us")]
    if len(quota) != 2 or not all(part.isdecimal() for part in quota) or not int(quota[1]):
        return None  # "max", or -1
    return int(quota[0]) / int(quota[1]) or None


def words(path: Path) -> list[str]:
    return " ".join(lines(path)).split()


def lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError):
        return []
