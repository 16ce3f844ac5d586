"""A run as one watches it: a live line in a terminal, quiet otherwise."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedrelay.record import Line, Recorder

MOST_DROPS = 5


def follow(recorder: Recorder, console: Console) -> None:
    """Run to the end, with a live display of accuracy, rounds per second and time left if this is a terminal."""
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TextColumn("accuracy {task.fields[accuracy]}"),
        TextColumn("{task.fields[speed]} rounds/s"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(recorder.name, total=recorder.rounds, accuracy="…", speed="…")
        began, first, named = time.perf_counter(), None, set[int]()
        for line in recorder.run():
            first = line["round"] if first is None else first
            seconds = time.perf_counter() - began
            speed = (line["round"] - first + 1) / seconds if seconds else 0.0
            progress.update(bar, completed=line["round"], speed=f"{speed:.1f}")
            if line["accuracy"] is not None:
                progress.update(bar, accuracy=f"{line['accuracy']:.1%}")
            tell_drops(line, named, console)


def tell_drops(line: Line, named: set[int], console: Console) -> None:
    """Name a dropped client and its reason, each client once and only the first few."""
    for drop in line["drops"]:
        if drop["client"] in named or len(named) > MOST_DROPS:
            continue
        named.add(drop["client"])
        where = f"round {line['round']}, chain {drop['chain']}"
        text = f"{where}: client {drop['client']} was dropped: {drop['reason']}"
        if len(named) > MOST_DROPS:
            text = "more clients were dropped; rounds.jsonl and the report name them all"
        console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)
