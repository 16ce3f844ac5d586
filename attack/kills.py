"""Commands that are killed, or asked to stop, at random moments: taken up again they come to the same bits."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import rmtree
from typing import Any

import cases
from cases import Case
from child import UNRETURNED, Blow, command, complaint, unreturned
from same import difference, let_an_hour_pass, record
from share import Share, Verdict

SECOND = 0.5
"""So often the command is struck again while it goes on."""
TRIES = 8
"""So often a blow that came too late is dealt again, earlier."""


@dataclass(frozen=True)
class Whole:
    """What a command leaves if nobody disturbs it."""

    seconds: float
    record: dict[str, Any]


def killed(share: Share, kinds: Sequence[Case], victims: Sequence[str] = ("command",)) -> Iterator[Verdict]:
    """SIGKILL, to the command itself or to what it has started too."""
    for number in share.numbers():
        case, rng = kinds[number // share.lanes % len(kinds)], share.rng(number)
        to = rng.choice(victims)
        moments = [rng.random() for _ in range(1 + (rng.random() < SECOND))]
        yield trial(share, number, case, [(moment, signal.SIGKILL, to) for moment in moments])


def stopped(share: Share, kinds: Sequence[Case]) -> Iterator[Verdict]:
    """Ctrl-C and SIGTERM, once or several times in a row."""
    for number in share.numbers():
        case, rng = kinds[number // share.lanes % len(kinds)], share.rng(number)
        sent = rng.choice((signal.SIGINT, signal.SIGTERM))
        yield trial(share, number, case, [(rng.random(), sent, rng.choice(("command", "all")))])


def trial(share: Share, number: int, case: Case, blows: Sequence[tuple[float, int, str]]) -> Verdict:
    """Start a command, strike it as often as is said, each time going on where it was, and let it end."""
    whole = undisturbed(share.folder, case)
    folder = share.folder / f"trial-{number}"
    arguments = case.write(folder)
    label = f"{case.name}, trial {number}"
    said: list[str] = []
    for moment, sent, to in blows:
        said.append(f"signal {sent} to {to} after {moment:.2f} of {whole.seconds:.2f} s")
        problem = struck(case, folder, arguments, Blow(moment * whole.seconds, sent, to))
        if problem:
            return Verdict(label, f"{', '.join(said)}: {problem}")
        let_an_hour_pass(folder / "out")
        arguments = [*case.write(folder), *case.again]
    ended = command(arguments, folder)
    problem = complaint(ended) or difference(whole.record, record(folder / "out"))
    if not problem and unreturned():
        problem = given_back(share.folder / "next")
    if not problem:
        rmtree(folder)
    return Verdict(label, f"{', '.join(said)}, then went on: {problem}" if problem else "")


def given_back(folder: Path) -> str:
    """Memory of who was killed with its workers is given back by the next run that has workers."""
    ended = command(cases.POOL[0].write(folder), folder)
    kept = unreturned()
    UNRETURNED.clear()
    rmtree(folder)
    return complaint(ended) or (f"shared memory was not given back: {', '.join(kept)}" if kept else "")


def struck(case: Case, folder: Path, arguments: Sequence[str], blow: Blow) -> str:
    """Strike while it runs; if it has ended before, begin again and strike earlier. What is wrong with its end."""
    first = not (folder / "out").exists()
    for _ in range(TRIES):
        ended = command(arguments, folder, blow)
        if blow.to == "worker":
            return complaint(ended)  # it goes on by itself
        if ended.code == -blow.signal or (ended.code != 0 and blow.signal != signal.SIGKILL):
            good = (-signal.SIGKILL,) if blow.signal == signal.SIGKILL else (130, -blow.signal)
            return complaint(ended, good)
        if problem := complaint(ended):
            return problem
        if not first:
            return ""  # what was left of the command took no time: it is done, and must be right
        rmtree(folder / "out")
        blow = Blow(blow.after * 0.7, blow.signal, blow.to)
    return ""


@cache
def undisturbed(folder: Path, case: Case) -> Whole:
    """The command from beginning to end: how long it takes, and what it leaves."""
    own = folder / f"whole-{case.name.replace(' ', '-')}"
    ended = command(case.write(own), own)
    if problem := complaint(ended):
        raise RuntimeError(f"{case.name} does not even run undisturbed: {problem}")
    return Whole(ended.seconds, record(own / "out"))


def inline(share: Share) -> Iterator[Verdict]:
    yield from killed(share, cases.INLINE)


def stacked(share: Share) -> Iterator[Verdict]:
    yield from killed(share, cases.STACKED)


def pool(share: Share) -> Iterator[Verdict]:
    yield from killed(share, cases.POOL, ("command", "all", "worker"))


def studies(share: Share) -> Iterator[Verdict]:
    yield from killed(share, cases.STUDIES)


def stops(share: Share) -> Iterator[Verdict]:
    yield from stopped(share, (*cases.INLINE[:12:3], *cases.STUDIES, cases.POOL[0]))
