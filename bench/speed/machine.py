"""The machine that was measured, in a few words."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path


def describe() -> dict[str, object]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 if hasattr(os, "sysconf") else 0
    return {
        "processor": processor(),
        "cores": cores(),
        "memory_gb": round(memory),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "torch": version("torch"),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
