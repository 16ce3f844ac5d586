"""Many short runs in one process: what they leave behind must not add up."""

from __future__ import annotations

import gc
import io
import json
import os
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from shutil import rmtree

import cases
from child import PATIENCE, forked, session
from share import Share, Verdict

WARM_UP = 0.1
"""This share of the runs fills caches, and is not counted."""
EVERY = 20
MEMORY = 32.0
"""Megabytes of resident memory by which the process may grow after the warm-up."""
CASES = (*cases.INLINE, *cases.STACKED)


def runs(share: Share) -> Iterator[Verdict]:
    """One child makes all runs and measures itself; only what is measured comes back."""
    told = share.folder / "measured.jsonl"
    ended = forked(lambda: inside(share, told), patience=share.left + PATIENCE)
    measured = [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
    if ended.code or not measured:
        yield Verdict("short runs", f"exit code {ended.code}: {ended.said[-400:]}")
        return
    last = measured[-1]
    after = next(one for one in measured if one["runs"] >= WARM_UP * last["runs"])
    most = {"MB": MEMORY, "descriptors": 0, "threads": 0, "processes": 0, "shared blocks": 0}
    grown = {f"more {name}": last[name] - after[name] for name in most}
    worse = [f"{grown[f'more {name}']:.0f} more {name}" for name in most if grown[f"more {name}"] > most[name]]
    yield Verdict("short runs", f"after {last['runs']} runs: {', '.join(worse)}" if worse else "", last["runs"], grown)


def inside(share: Share, told: Path) -> int:
    from fedrelay.cli import main

    os.chdir(share.folder)
    for number in share.numbers():
        arguments = CASES[number % len(CASES)].write(share.folder / "run")
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
            code = main([arguments[0], "run/case.toml", "--out", "run/out"])
        if code:
            print(said.getvalue())
            return code
        rmtree(share.folder / "run")
        if number % EVERY == 0 or number == share.wanted - 1:
            with told.open("a") as file:
                file.write(json.dumps({"runs": number + 1, **measured()}) + "\n")
        if not share.left:
            break
    return 0


def measured() -> dict[str, float]:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    mapped = Path("/proc/self/maps").read_text().count("/dev/shm/")
    return {
        "MB": pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "threads": sum(1 for _ in Path("/proc/self/task").iterdir()),
        "processes": len(session(os.getpid())),
        "shared blocks": mapped,
    }
