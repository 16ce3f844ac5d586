"""Every point at which a file operation of a command can be cut: by a kill, by a full disk, whole or half-way."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from shutil import rmtree

import cases
import faults
from cases import Case
from same import difference, let_an_hour_pass, record
from share import Share, Verdict

CASES = (
    cases.Case("run", cases.changed(rounds=2, checkpoint=1)),
    cases.Case("run with memories that spill", {**cases.run_of("scaffold", cases.SPILLING).tables, "rounds": 2}),
    cases.Case("compare", {**cases.COMPARE.tables, "rounds": 2, "seeds": [0]}, verb="compare", again=()),
    cases.Case("tune", cases.changed(rounds=4), verb="tune", options=("--lr", "0.1,0.3"), again=()),
    cases.GROUPS,
)


def enumerated(share: Share) -> Iterator[Verdict]:
    """All points of all commands, one command after another."""
    points = [(case, *point) for case in CASES for point in faults.trials(operations(share.folder, case))]
    for number in share.numbers():
        if number >= len(points):
            return
        few = share.wanted < len(points)  # then from everywhere
        verdict = trial(share.folder, *points[number * len(points) // share.wanted if few else number])
        yield replace(verdict, of=len(points))


def action(folder: Path, arguments: list[str]) -> int:
    from fedrelay.cli import main

    os.chdir(folder)
    return main(arguments)


@cache
def operations(folder: Path, case: Case) -> list[str]:
    """What a command does to the disk."""
    own = folder / f"whole-{case.name.replace(' ', '-')}"
    found = faults.operations(partial(action, own, case.write(own)))
    EXPECTED[case.name] = record(own / "out")
    return found


EXPECTED: dict[str, dict[str, object]] = {}


def trial(folder: Path, case: Case, number: int, kind: str) -> Verdict:
    own = folder / "trial"
    if own.exists():
        rmtree(own)
    arguments = case.write(own)
    label = f"{case.name}, {kind} at operation {number}"
    ended = faults.at(number, kind, partial(action, own, arguments))
    missed = "it was not killed" if ended.code != -signal.SIGKILL else ""
    problem = missed if kind in faults.KILLS else spoken(ended)
    let_an_hour_pass(own / "out")
    again = faults.once(partial(action, own, [*arguments, *case.again]))
    problem = problem or (f"going on: {again.said[-300:]}" if again.code else "")
    return Verdict(label, problem or difference(EXPECTED[case.name], record(own / "out")))


def spoken(ended: faults.Ended) -> str:
    """A full disk is told in our words; what could do without the room has ended well."""
    if "Traceback" in ended.said or "unexpected" in ended.said:
        return f"a full disk ended in: {ended.said[-300:]}"
    return "" if ended.code in (0, 1, 2) else f"a full disk ended with {ended.code}: {ended.said[-300:]}"
