"""A run as one watches it: a live line in a terminal, quiet otherwise."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from fedrelay.errors import DroppedClients
from fedrelay.report.measures import words
from fedrelay.runs import checkpoint
from fedrelay.runs.log import RoundLog
from fedrelay.runs.record import Recorder
from fedrelay.runs.trackers import tracked, trackers
from fedrelay.runs.underway import FOLDER, in_words
from fedrelay.types import Chain, Engine, Outcome, Tree, Underway, Work

MOST_DROPS = 5


def follow(
    recorder: Recorder, console: Console, beside: RenderableType | None = None, *, logbooks: Sequence[str] = ()
) -> None:
    """Run to the end, with a live display of the headline, rounds per second and time left if this is a terminal, and
    of what there is beside; every round is also written into these logbooks (`trackers.TRACKERS`)."""
    books = trackers(logbooks, recorder.path)
    with bars(console, beside) as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", DroppedClients)  # they are named below
        recorder = replace(recorder, engine=Watched(recorder.engine, progress))
        done, headline = recorder.done(), recorder.engine.task.headline
        name = words(headline.name)
        at = recorder.path / checkpoint.FOLDER / FOLDER
        bar = progress.add_task(
            recorder.name, total=recorder.rounds, completed=done, unit="rounds", said=f"{name} …", underway=at
        )
        began, named, found, told = time.perf_counter(), set[int](), "…", ""
        lost: list[int] = []
        for log in tracked(recorder, books):
            if log.round <= done:  # of an earlier part of this run
                began = time.perf_counter()
                continue
            speed = (log.round - done) / (time.perf_counter() - began)
            value = log.metrics.get(headline.name)
            found = found if value is None else headline.text(value)
            progress.update(bar, completed=log.round, said=f"{name} {found} {speed:.1f} rounds/s")
            told = tell_engine(recorder.engine, told, console)
            tell_drops(log, named, console)
            tell_undescribed(log, console)
            tell_joined(log, recorder.engine.names, console)
            lost += [drop.client for drop in log.drops]
        if len(lost) > len(named):
            text = f"{recorder.name}: {len(lost)} visits were lost, of {len(set(lost))} client(s)"
            console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)


class Bars(Progress):
    """Bars, and something below them that is drawn anew whenever they are."""

    beside: RenderableType | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.beside is not None:
            yield self.beside


def bars(console: Console, beside: RenderableType | None = None) -> Progress:
    """Bars that show how far something is, of what unit, what there is to say of it and how long it will take."""
    columns = (
        TextColumn("{task.description:<12}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TextColumn("{task.fields[said]}", markup=False),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        UnderwayColumn(),
    )
    made = Bars(*columns, console=console, disable=console.quiet or not console.is_terminal)
    made.beside = beside
    return made


class UnderwayColumn(ProgressColumn):
    """How far the chains of a long round are."""

    max_refresh = 1.0

    def render(self, task: Task) -> Text:
        folder: Path | None = task.fields.get("underway")
        return Text("" if folder is None else in_words(folder), style="dim")


class Watched(Engine):
    """An engine around an engine: what clients do before the first round has a bar of its own as it comes in."""

    def __init__(self, engine: Engine, progress: Progress) -> None:
        self.engine, self.progress = engine, progress
        self.task, self.sizes, self.seed = engine.task, engine.sizes, engine.seed
        self.device, self.prepared = engine.device, engine.prepared

    @property
    def native(self) -> bool:  # type: ignore[override]
        return self.engine.native

    def keep_in(self, underway: Underway, /) -> None:
        self.engine.keep_in(underway)

    @property
    def names(self) -> Sequence[str]:
        return self.engine.names

    def why_stop(self, round: int, /) -> str | None:
        return self.engine.why_stop(round)

    def measured(self) -> Tree:
        return self.engine.measured()

    def joined(self) -> Sequence[int]:
        return self.engine.joined()

    @property
    def settings(self) -> Mapping[str, Any] | None:
        return self.engine.settings

    @property
    def explanation(self) -> str:
        return self.engine.explanation

    def run(self, work: Work, chains: Sequence[Chain], shared: Tree, round: int, /) -> Iterator[Outcome]:
        outcomes = self.engine.run(work, chains, shared, round)
        if round:
            yield from outcomes
            return
        bar = self.progress.add_task("describing", total=len(chains), unit="clients", said=type(work).__name__)
        for outcome in outcomes:
            self.progress.advance(bar)
            yield outcome

    def commit(self, round: int, /) -> None:
        self.engine.commit(round)

    def back_to(self, round: int, /) -> None:
        self.engine.back_to(round)

    def saved(self, round: int, /) -> None:
        self.engine.saved(round)

    def memories(self) -> tuple[int, Mapping[int, Tree]]:
        return self.engine.memories()

    def remember(self, round: int, memories: Mapping[int, Tree], /) -> None:
        self.engine.remember(round, memories)

    def close(self) -> None:
        self.engine.close()


def tell_engine(engine: Engine, told: str, console: Console) -> str:
    """Say how the engine chose to run, whenever it chooses."""
    explanation = engine.explanation
    if explanation and explanation != told and console.is_terminal:
        console.print(f"engine: {explanation}", style="dim", markup=False, highlight=False, soft_wrap=True)
    return explanation


def tell_drops(log: RoundLog, named: set[int], console: Console) -> None:
    """Name a dropped client and its reason, each client once and only the first few."""
    for drop in log.drops:
        if drop.client in named or len(named) > MOST_DROPS:
            continue
        named.add(drop.client)
        where = f"round {log.round}, chain {drop.chain}"
        text = f"{where}: client {drop.client} was dropped: {drop.reason}"
        if len(named) > MOST_DROPS:
            text = "more clients were dropped; rounds.jsonl and the report name them all"
        console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)


def tell_undescribed(log: RoundLog, console: Console) -> None:
    """Name the clients of which no trait came back."""
    for missing in log.undescribed:
        text = f"client {missing.client} could not be described, so it is grouped at random: {missing.reason}"
        console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)


def tell_joined(log: RoundLog, names: Sequence[str], console: Console) -> None:
    """Name the clients that had not joined before."""
    if log.joined:
        who = ", ".join(names[client] if names else f"client {client}" for client in log.joined)
        text = f"from round {log.round} on: {who}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
