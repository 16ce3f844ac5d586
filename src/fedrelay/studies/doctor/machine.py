"""Cores, memory and devices, and what of them this process may use."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch

from fedrelay.engines.pool.dispatch import cores
from fedrelay.errors import BadInput
from fedrelay.studies.doctor.finding import Finding
from fedrelay.system import devices as there
from fedrelay.system.cores import CORES, GROUPS, MEMBER, affinity, available, lines, processor_quota, told, words

LITTLE = 2.0
"""Gigabytes below which training of anything but small models may end for want of memory."""


def machine(groups: Path = GROUPS) -> list[Finding]:
    """The findings of the topic."""
    return [*processors(groups), memory(groups), *devices()]


def processors(groups: Path = GROUPS, member: Path = MEMBER) -> list[Finding]:
    """How many cores there are, and how many of them are ours."""
    there = os.cpu_count() or 1
    try:
        cores()
    except BadInput as error:
        return [Finding("machine", "cores", f"{there}", f"{error}: unset it", wrong=True)]
    quota, best = processor_quota(groups, member), available(groups, member)
    ours = int(told()) if told() else best
    limits = [] if affinity() == there else [f"the process may run on {affinity()}"]
    limits += [] if quota is None else [f"the container's quota is worth {quota:g}"]
    limits += [f"{CORES}={told()}"] if told() else []
    found = f"{there}, all of them ours" if ours == there and not limits else f"{ours} of {there} are ours"
    remedy = f"set {CORES}={best} or unset it: more processes than that wait for one another" if ours > best else ""
    threads = f"{torch.get_num_threads()} (OMP_NUM_THREADS {os.environ.get('OMP_NUM_THREADS', 'not set')})"
    about = f" ({', '.join(limits)})" if limits else ""
    return [Finding("machine", "cores", found + about, remedy), Finding("machine", "threads of torch", threads)]


def memory(groups: Path = GROUPS) -> Finding:
    """How much there is, how much is free, and what the container may use."""
    facts = dict(line.split(":", 1) for line in lines(Path("/proc/meminfo")) if ":" in line)
    whole, free = (kilobytes(facts.get(name, "")) for name in ("MemTotal", "MemAvailable"))
    if whole is None and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    limit = next((int(found[0]) / 2**30 for found in limits_of_memory(groups) if found and found[0].isdecimal()), None)
    parts = [
        "unknown" if whole is None else f"{whole:.1f} GB",
        *([] if free is None else [f"{free:.1f} GB free"]),
        *([] if limit is None or (whole is not None and limit >= whole) else [f"the container may use {limit:.1f} GB"]),
    ]
    least = min((value for value in (free, limit) if value is not None), default=LITTLE)
    remedy = "close other programs, or use few workers and small models" if least < LITTLE else ""
    return Finding("machine", "memory", ", ".join(parts), remedy)


def limits_of_memory(groups: Path) -> list[list[str]]:
    return [words(groups / "memory.max"), words(groups / "memory" / "memory.limit_in_bytes")]


def devices() -> list[Finding]:
    """What fedrelay could compute on: `[engine] device` chooses."""
    processor = f"cpu ({platform.machine()}, {platform.system()} {platform.release()})"
    found = [Finding("machine", "device", f"{processor}, which is what runs compute on unless they say another")]
    for name in there.found()[1:]:
        device = there.find(name)
        room = there.free(device)
        left = "" if room is None else f", {there.in_words(room)} free"
        found.append(Finding("machine", "device", f"{name}: {there.title(device)}{left}"))
    return found


def kilobytes(text: str) -> float | None:
    """In gigabytes, as /proc writes it."""
    number = text.split()[:1]
    return int(number[0]) / 2**20 if number and number[0].isdecimal() else None
