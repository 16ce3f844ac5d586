"""The grid as one page and as Markdown: a heat map for every method, and what defences give and cost."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedrelay.report.measures import words
from fedrelay.report.rendering import rendered
from fedrelay.studies.attack_grid.cells import BROKE_OFF, Cell, Cells, Worth
from fedrelay.studies.attack_grid.crossing import NOBODY, NOTHING
from fedrelay.studies.markdown import markdown_table
from fedrelay.studies.over_seeds import mean_and_deviation

STRONGEST = 70.0
"""Percent of the colour in a cell where everything is lost: text must stay legible on it."""


@dataclass(frozen=True)
class Square:
    """A cell as it is drawn: its figure, what is lost, how strong its colour is, and what there is to say of it."""

    figure: str = ""
    lost: str = ""
    heat: float = 0.0
    note: str = ""
    mark: int = 0
    """The number of the remark that says why there is no figure, or why a run broke off; 0 if there is none."""


@dataclass(frozen=True)
class Sheet:
    """The heat map of a method."""

    title: str
    caption: str
    heads: Sequence[str]
    lines: Sequence[tuple[str, Sequence[Square | None]]]
    ends: tuple[str, str] = ("nothing lost", "all lost")
    """What the faintest and the strongest colour mean."""


def html(cells: Cells, name: str) -> str:
    """The page of the file of this name; names are text, whatever they contain."""
    reasons: list[str] = []
    sheets = [sheet(cells, method, reasons) for method in cells.grid.methods]
    opened = [one for method in cells.grid.methods if (one := backdoors(cells, method, reasons)) is not None]
    return rendered(
        "grid.html",
        (),
        package="fedrelay.studies.attack_grid",
        title=Path(name).stem,
        command=f"fedrelay compare {name}",
        headline=told(cells),
        notes=notes(cells),
        sheets=[*sheets, *opened],
        worth=[(method, *worth_table(cells, method)) for method in cells.grid.methods],
        reasons=reasons,
    )


def markdown(cells: Cells, name: str) -> str:
    """For documents."""
    reasons: list[str] = []
    said = [f"Made by `fedrelay compare {name}`.", *notes(cells)]
    parts = [f"# {told(cells)}", "\n".join(f"- {note}" for note in said)]
    for method in cells.grid.methods:
        parts += [f"## What defences give and cost: {method}", markdown_table(*worth_table(cells, method), words=1)]
    sheets = [sheet(cells, method, reasons) for method in cells.grid.methods]
    opened = [one for method in cells.grid.methods if (one := backdoors(cells, method, reasons)) is not None]
    for one in (*sheets, *opened):
        lines = [[name, *(plain(square) for square in squares)] for name, squares in one.lines]
        parts += [f"## {one.title}", one.caption, markdown_table(["", *one.heads], lines, words=1)]
    parts += ["\n".join(f"{number}. {why}" for number, why in enumerate(reasons, 1))] if reasons else []
    return "\n\n".join(parts) + "\n"


def plain(square: Square | None) -> str:
    """A cell without colour."""
    if square is None:
        return ""
    return " ".join([square.figure] * bool(square.figure) + [f"({square.mark})"] * bool(square.mark))


def told(cells: Cells) -> str:
    """What there is, in a sentence."""
    *others, last = cells.grid.methods
    names = f"{', '.join(others)} and {last}" if others else last
    attacks, defences = len(cells.grid.attacks) - 1, len(cells.grid.defences) - 1
    return f"{several(attacks, 'attack')}, {several(defences, 'defence')}: what is left of {names}"


def several(count: int, word: str) -> str:
    return f"{count} {word}" + ("" if count == 1 else "s")


def notes(cells: Cells) -> list[str]:
    """What must be known before cells are compared."""
    found = [
        f"{figure(cells).capitalize()} is the mean of the last tests, over {cells.seeds} seeds; what is lost is "
        "measured against the run of the same method and seed in which nobody attacks and nothing is done about it."
        if cells.seeds > 1
        else f"{figure(cells).capitalize()} is the mean of the last tests, of one seed: small differences say nothing."
    ]
    if cells.spread is not None:
        found.append(
            f"Over seeds what is lost in a cell deviates by {points(cells)(cells.spread)} (the median of all cells): "
            "smaller differences say nothing."
        )
    attacked = [one for place, some in cells.found.items() if place[1] != NOBODY for one in some]
    if any(isinstance(one, str) and one.startswith(BROKE_OFF) for one in attacked):
        found.append(
            "A run that broke off under attack, because its models diverged, counts as 0: nothing is left of it."
        )
    counts = {who: len(cells.attacks_by(who)) for who in dict.fromkeys(cells.grid.who.values())}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{several(count, 'attack')} by {who}" for who, count in counts.items())
        found.append(f"Means are over different attacks ({told}): compare them within a column, not across columns.")
    found.append(f"The row “{NOBODY}” is what a defence costs.")
    return found


def figure(cells: Cells) -> str:
    """What the runs are judged by, in words."""
    return words(cells.by.name)


def points(cells: Cells) -> Callable[[float], str]:
    """Differences as they are written: points of a share, or the figure itself."""
    return (lambda value: f"{100 * value:.1f}") if cells.by.share else "{:.3g}".format


def signed(cells: Cells, lost: float) -> str:
    """What became of a figure: a loss has a minus."""
    text = points(cells)(abs(lost))
    return text if not text.strip("0.") else f"−{text}" if lost > 0 else f"+{text}"


def sheet(cells: Cells, method: str, reasons: list[str]) -> Sheet:
    """What is left of a method."""
    places = [(attack, [(method, attack, defence) for defence in cells.grid.defences]) for attack in cells.grid.attacks]
    lines = [(attack, [square(cells, cells.cell(place), reasons) for place in row]) for attack, row in places]
    unit = ", in percent" if cells.by.share else ""
    caption = f"{figure(cells).capitalize()}{unit}, after the attack of a row with the defence of a column."
    return narrowed(Sheet(f"{method}: {figure(cells)}", caption, cells.grid.defences, lines))


def square(cells: Cells, cell: Cell | None, reasons: list[str]) -> Square | None:
    """A cell of it; the darker, the more is lost."""
    if cell is None:
        return None
    mark = marked(cell.why, reasons) if cell.why else 0
    if cell.value is None:
        return Square(note=cell.why, mark=mark)
    text = points(cells)
    lost = statistics.fmean(cell.lost) if cell.lost else None
    honest = cell.value + (lost or 0.0) if cells.by.higher_is_better else cell.value - (lost or 0.0)
    share = max(0.0, min(1.0, lost / abs(honest))) if lost is not None and honest else 0.0
    note = f"{mean_and_deviation(cell.values, text)}; lost {mean_and_deviation(cell.lost, text)}" if cell.lost else ""
    said = signed(cells, lost) if lost is not None else ""
    return Square(text(cell.value), said, STRONGEST * share, " ".join([note, cell.why]).strip(), mark)


def backdoors(cells: Cells, method: str, reasons: list[str]) -> Sheet | None:
    """How often backdoors open; nothing where there are none."""
    lines = []
    for attack in cells.grid.attacks:
        found = [cells.cell((method, attack, defence)) for defence in cells.grid.defences]
        if any(cell is not None and cell.success for cell in found):
            lines.append((attack, [opened(cell, reasons) for cell in found]))
    if not lines:
        return None
    caption = (
        "How many of the test images of other classes, in percent, are called the attacker's class as soon as they "
        "carry its trigger."
    )
    return narrowed(Sheet(f"{method}: backdoor success", caption, cells.grid.defences, lines, ("never", "always")))


def opened(cell: Cell | None, reasons: list[str]) -> Square | None:
    if cell is None:
        return None
    if not cell.success:
        return Square(note=cell.why, mark=marked(cell.why, reasons))
    share = statistics.fmean(cell.success)
    return Square(f"{100 * share:.1f}", "", STRONGEST * share, mean_and_deviation(cell.success, "{:.1%}".format))


def narrowed(one: Sheet) -> Sheet:
    """Without the defences that this method does not have."""
    kept = [place for place, _ in enumerate(one.heads) if any(row[place] is not None for _, row in one.lines)]
    lines = [(name, [row[place] for place in kept]) for name, row in one.lines]
    return replace(one, heads=[one.heads[place] for place in kept], lines=lines)


def marked(why: str, reasons: list[str]) -> int:
    """The number of this reason, among those that were said already; which clients broke off is in `results.json`."""
    why = why.partition(" (")[0] if why.startswith(BROKE_OFF) else why
    if why not in reasons:
        reasons.append(why)
    return reasons.index(why) + 1


def worth_table(cells: Cells, method: str) -> tuple[list[str], list[list[str]]]:
    """The heads and the lines of what every defence gives and costs this method."""
    groups = list(dict.fromkeys(cells.grid.who.values()))
    heads = ["defence", "cost if nobody attacks", "traffic"]
    for who in groups:
        heads += [f"left on the mean of {several(len(cells.attacks_by(who)), 'attack')}, {who}", "worst"]
    return heads, [worth_line(cells, method, one, groups) for one in cells.worth(method)]


def worth_line(cells: Cells, method: str, one: Worth, groups: Sequence[str]) -> list[str]:
    clean = cells.cell((method, NOBODY, NOTHING))
    text, base = points(cells), clean.value if clean is not None else None
    sign = 1.0 if cells.by.higher_is_better else -1.0
    line = [one.defence, mean_and_deviation(one.cost, text) if one.cost and one.defence != NOTHING else "–"]
    line.append(f"{one.bytes:.2f} ×" if one.bytes is not None else "–")
    for who in groups:
        lost, worst = one.lost.get(who), one.worst.get(who)
        line.append(text(base - sign * lost) if lost is not None and base is not None else "–")
        line.append(f"{worst[0]} ({text(base - sign * worst[1])})" if worst is not None and base is not None else "–")
    return line
