"""Runs that go on elsewhere, in a terminal: drawn anew as they write, or told once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedrelay.errors import BadInput
from fedrelay.report import measures
from fedrelay.report.live import facts
from fedrelay.runs.following import FAILED, FINISHED, GOING, KILLED, Following, Glance, runs_below
from fedrelay.runs.summary import tests_of

BLOCKS = "▁▂▃▄▅▆▇█"
MOST_CHAINS, MOST_CLIENTS = 8, 12
STYLES = {FINISHED: "green", FAILED: "bold red", KILLED: "yellow"}


class Folder:
    """All runs in a folder, or the one that it is; new ones are found at every look."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise BadInput(f"{folder} is not a folder: name one that `fedrelay run FILE.toml --out DIR` writes into")
        self.folder = folder
        self._known: dict[Path, Following] = {}

    def look(self) -> list[Glance]:
        found = runs_below(self.folder)
        self._known = {path: self._known.get(path) or Following(path) for path in found}
        return [following.look() for following in self._known.values()]


def watch(folder: Path, console: Console, *, every: float = 1.0) -> list[Glance]:
    """Show what goes on until every run has ended: the last that was seen. Where nothing can be drawn anew, a line is
    printed for every run that has changed."""
    seen = Folder(folder)
    if not console.is_terminal:
        return _told(seen, console, every)
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        while True:
            found = seen.look()
            live.update(shown(found, folder), refresh=True)
            if ended(found):
                return found
            time.sleep(every)


def _told(seen: Folder, console: Console, every: float) -> list[Glance]:
    said: dict[Path, str] = {}
    while True:
        found = seen.look()
        for glance, name in zip(found, measures.labels([one.run for one in found]), strict=True):
            text = line(glance, name)
            if said.get(glance.run.folder) != text:
                said[glance.run.folder] = text
                console.print(text, highlight=False, soft_wrap=True)
        if ended(found):
            return found
        time.sleep(every)


def ended(found: Sequence[Glance]) -> bool:
    """Whether there is nothing more to wait for; a folder without runs may still get one."""
    return bool(found) and all(glance.status not in GOING for glance in found)


def once(folder: Path) -> list[Glance]:
    """The runs as they are now; a folder without any is refused."""
    found = Folder(folder).look()
    if not found:
        raise BadInput(
            f"{folder} holds no run: name a folder that `fedrelay run FILE.toml --out DIR` or `fedrelay compare` "
            "writes into"
        )
    return found


# --- drawing


def shown(found: Sequence[Glance], folder: Path) -> RenderableType:
    """One run in full, several as a table."""
    if not found:
        return Text(f"{folder} holds no run yet; waiting for one (Ctrl-C ends)", style="dim")
    if len(found) == 1:
        return one_run(found[0])
    names = measures.labels([glance.run for glance in found])
    going = [one_run(glance, name) for glance, name in zip(found, names, strict=True) if glance.status in GOING]
    return Group(table(found, names), *(going if len(going) == 1 else ()))


def line(glance: Glance, name: str) -> str:
    """A run in one line of plain text."""
    said = facts.facts(glance)
    by, left = measures.headline_of(glance.run), said["seconds_left"]
    parts = [
        f"{name}: {said['words']}",
        f"round {said['rounds']}/{said['total'] or '?'}",
        f"{said['metric']['words']} {measures.figure(said['value'], by)}",
        measures.size(said["bytes"]),
        *([f"about {measures.duration(left)} left"] if left is not None else []),
        *([f"{said['damaged']} damaged line(s) skipped"] if said["damaged"] else []),
    ]
    return ", ".join(parts)


def one_run(glance: Glance, name: str = "") -> RenderableType:
    """All that there is to say of one run."""
    said, run = facts.facts(glance), glance.run
    by = measures.headline_of(run)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("run", Text(f"{name or run.name} ({said['algorithm']})"))
    pid = f", process {glance.pid}" if glance.pid is not None else ""
    grid.add_row("state", Text(f"{said['words']}{pid}", style=STYLES.get(glance.status, "")))
    grid.add_row("rounds", rounds(glance))
    curve = tests_of(run.rounds, by.name)
    best = f", best {measures.figure(said['best'], by)}" if curve else ""
    grid.add_row(said["metric"]["words"], Text(f"{spark(curve, 40)} {measures.figure(said['value'], by)}{best}"))
    losses = [log.train_loss for log in run.rounds if log.train_loss is not None]
    test = f", test {measures.plain(said['loss'])}" if said["loss"] is not None else ""
    grid.add_row("loss", Text(f"{spark(losses, 40)} train {measures.plain(said['train_loss'])}{test}"))
    grid.add_row("traffic", Text(measures.size(said["bytes"])))
    grid.add_row("chains", chains(glance))
    if said["drops"]:
        grid.add_row("dropped", Text("\n".join(dropped(glance)), style="yellow"))
    if glance.damaged:
        grid.add_row("damaged", Text(f"{glance.damaged} line(s) of rounds.jsonl, which were skipped", style="yellow"))
    return grid


def rounds(glance: Glance) -> RenderableType:
    """Done, left, and how long that takes."""
    if glance.total is None:
        return Text(f"{glance.done}")
    left = glance.seconds_left
    text = f"{glance.done}/{glance.total}" + ("" if left is None else f", about {measures.duration(left)} left")
    grid = Table.grid(padding=(0, 1))
    grid.add_row(ProgressBar(total=glance.total, completed=glance.done, width=40), Text(text))
    return grid


def spark(values: Sequence[float], width: int) -> str:
    """A curve of blocks; of more values than there is room for, the last in each place."""
    if not values:
        return ""
    count = min(width, len(values))
    some = [values[(place + 1) * len(values) // count - 1] for place in range(count)]
    low, high = min(some), max(some)
    step = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((value - low) * step)] for value in some)


def chains(glance: Glance) -> Text:
    """Who trains after whom: in the round under way as far as it says so, else in the last one."""
    now = facts.chains_now(glance)
    if now:
        lines = [along(told.clients, told.figures["hop"][0]) for told in now[:MOST_CHAINS]]
        more = len(now) - MOST_CHAINS
        return Text.assemble(f"round {glance.done + 1}", *(Text.assemble("\n", one) for one in lines), rest(more))
    if not glance.run.rounds:
        return Text("no round has ended yet")
    log = glance.run.rounds[-1]
    said = f"round {log.round}: {log.chains} chain(s), the longest of {log.depth} hop(s), {log.clients} client(s)"
    lines = [along(clients) for clients in log.order[:MOST_CHAINS] if len(clients) > 1]
    more = log.chains - MOST_CHAINS if lines else 0
    return Text.assemble(said, *(Text.assemble("\n", one) for one in lines), rest(more))


def along(clients: Sequence[int], hop: int | None = None) -> Text:
    """A chain, with the client that trains now marked."""
    first = 0 if hop is None else max(0, min(hop - MOST_CLIENTS // 2, len(clients) - MOST_CLIENTS))
    text = Text("… → " if first else "")
    for place in range(first, min(first + MOST_CLIENTS, len(clients))):
        now = hop is not None and place == hop - 1
        text.append("" if place == first else " → ", style="dim")
        text.append(f"[{clients[place]}]" if now else str(clients[place]), style="bold green" if now else "")
    return text.append(" → …" if first + MOST_CLIENTS < len(clients) else "")


def rest(more: int) -> str:
    return f"\n… and {more} more" if more > 0 else ""


def dropped(glance: Glance) -> list[str]:
    """The last of those that were lost, with their reasons."""
    found = facts.drops(glance)
    lines = [
        f"client {one['client']}, {one['times']} time(s), last in round {one['round']}: {one['reason'][:200]}"
        for one in found[: facts.MOST_DROPS]
    ]
    more = len(found) - facts.MOST_DROPS
    return [*lines, f"… and {more} more client(s)"] if more > 0 else lines


def table(found: Sequence[Glance], names: Sequence[str]) -> Table:
    """One line a run."""
    made = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    by = measures.headline([glance.run for glance in found])
    for column in ("run", "state", "rounds", "", measures.words(by.name), "traffic", "left"):
        right = column not in ("run", "state", "")
        whole = len("finished") if column == "state" else None  # so much of a state is always to be read
        made.add_column(column, justify="right" if right else "left", no_wrap=column != "state", min_width=whole)
    for glance, name in zip(found, names, strict=True):
        curve = tests_of(glance.run.rounds, by.name)
        left = glance.seconds_left
        remark = f", {glance.damaged} damaged line(s)" if glance.damaged else ""
        made.add_row(
            Text(name),
            Text(facts.status(glance)[:60] + remark, style=STYLES.get(glance.status, "")),
            f"{glance.done}/{glance.total or '?'}",
            spark(curve, 12),
            measures.figure(curve[-1] if curve else None, by),
            measures.size(facts.traffic(glance)),
            "" if left is None else measures.duration(left),
        )
    return made
