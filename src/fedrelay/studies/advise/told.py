"""Advice in words: for the terminal, for a document, and the tables of docs/advise.md."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import join

from rich.console import Console
from rich.table import Table

from fedrelay.studies.advise.advice import NOT_MEASURED, Advice, command, skipped
from fedrelay.studies.advise.evidence import LIKE, SPEEDS, borrowed
from fedrelay.studies.advise.facts import KEPT, Facts
from fedrelay.studies.advise.rules import RULES
from fedrelay.studies.advise.shortlist import Candidate, Range
from fedrelay.studies.markdown import markdown_table
from fedrelay.studies.marks import filled
from fedrelay.system import files

LEVELS = {"alike": "alike", "unlike": "unlike", "one class": "as unlike as clients with one class each"}
HEADS = ("method", "try", "rounds", "traffic", "time")


def sizes_in_words(facts: Facts) -> str:
    """Who there is."""
    if facts.clients == 1:
        return f"One client with {facts.sizes[1]:,} examples."
    least, middle, most = facts.sizes
    return f"{facts.clients:,} clients with {least:,} to {most:,} examples (the one in the middle has {middle:,})."


def unlike_in_words(facts: Facts) -> str:
    """How unlike clients are, and how that is known."""
    if facts.clients == 1:
        return "Nobody to compare it with."
    if facts.h is not None and facts.excess is not None:
        text = f"Class mixes are {facts.h:.2f} from that of all (Hellinger distance), {facts.excess:.2f} beyond chance"
    elif facts.diversity is not None:
        own, even = facts.diversity
        text = f"Gradients of the first model have a diversity of {own:.2g}; those of an even split {even:.2g}"
    else:
        text = "Nothing is known of what tells clients apart"
    return f"{text}: {LEVELS[facts.level]}."


def work_in_words(facts: Facts) -> str:
    """What a round is."""
    size = "small" if facts.small else "larger than LeNet"
    work = f"{many(facts.taking_part, 'client')} a round, {many(facts.steps, 'local step')}"
    return (
        f"A model of {facts.parameters:,} parameters ({in_bytes(facts.model_bytes)}, {size}); {work}, about "
        f"{facts.visits:.3g} times each client in {many(facts.rounds, 'round')}."
    )


def many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def in_bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def in_time(seconds: float) -> str:
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def between(found: Range, words: object = None) -> str:
    """A range, or that there is none."""
    write = words if callable(words) else "{:.0f}".format
    low, high = str(write(found.low)), str(write(found.high))
    return f"about {low}" if low == high else f"{low} … {high}"


def values_in_words(one: Candidate) -> str:
    return f"{one.key.rpartition('.')[2]} {', '.join(f'{value:g}' for value in one.values)}"


def rows_of(advice: Advice) -> list[list[str]]:
    """The short-list with what each may take."""
    rows = []
    for one in advice.candidates:
        found = advice.predicted(one)
        rounds = f"{advice.facts.rounds} (taken as given)" if one.method == "fedavg" else between(found.rounds)
        rows.append(
            [
                one.method,
                values_in_words(one),
                rounds,
                between(found.traffic, in_bytes),
                between(found.seconds, in_time),
            ]
        )
    return rows


def choice_in_words(advice: Advice) -> str:
    """What to try first, in one sentence."""
    one, facts = advice.first, advice.facts
    if facts.clients == 1:
        return "Train where the data is: one client makes no federation."
    settings = [f"{key} = {value}" for key, value in one.algorithm.items() if key not in ("name", "fraction", *KEPT)]
    chosen = f" ({', '.join(settings)})" if settings else ""
    why = f": {', '.join(one.rules)}" if one.rules else ""
    return f"Try {one.method}{chosen} first{why}."


def clock_in_words(advice: Advice) -> str:
    """Whether chains pay on the clock."""
    if advice.break_even is None:
        return ""
    return (
        f"On the clock chains of {advice.facts.chain} pay if they need {advice.break_even:.2g} times fewer rounds than "
        "FedAvg; published: 1.75 times with tuned rates (median), 6 at one rate for all."
    )


@dataclass(frozen=True)
class Said:
    """What was typed after `fedrelay advise`, so that the commands that are printed say it too."""

    what: str
    sets: tuple[str, ...] = ()
    data_dir: str | None = None
    wishes: tuple[str, ...] = ()
    """Options that only `advise` knows, as words."""
    alone: bool = True
    """Whether the file is of one run, which other commands take as it is."""

    @property
    def place(self) -> list[str]:
        """Where data sets lie, for every command."""
        return [] if self.data_dir is None else ["--data-dir", self.data_dir]

    @property
    def own(self) -> list[str]:
        return [*(word for text in self.sets for word in ("--set", text)), *self.place]

    def again(self, *more: str) -> str:
        """The same command with something more."""
        return join(["fedrelay", "advise", self.what, *self.own, *self.wishes, *more])

    def run(self, file: Path) -> str:
        """The command that runs a file which has everything that was set."""
        return join(["fedrelay", "run", str(file), *self.place])


def commands(advice: Advice, said: Said) -> list[str]:
    """What to type, to find out."""
    if said.what.endswith(".toml") and said.alone:
        first = [command(advice.first, said.what, said.own)]
    else:
        first = [said.again("--out", "advice"), said.run(Path("advice") / "first.toml")]
    return [*first, *([said.again("--race")] if advice.facts.clients > 1 else [])]


def show(advice: Advice, said: Said, console: Console) -> None:
    """The advice in a terminal."""
    for text in (sizes_in_words(advice.facts), unlike_in_words(advice.facts), work_in_words(advice.facts)):
        console.print(text, highlight=False)
    console.print(f"\n{choice_in_words(advice)}", style="bold green", highlight=False)
    if advice.facts.clients > 1:
        table = Table(*HEADS, box=None, pad_edge=False, header_style="bold", title_justify="left", title_style="")
        for row in rows_of(advice):
            table.add_row(*row)
        console.print(f"\nTo the target, cheapest {advice.facts.by} first; {NOT_MEASURED}:", highlight=False)
        console.print(table, highlight=False)
        console.print(clock_in_words(advice), highlight=False)
    for line in skipped(advice.refused):
        console.print(line, highlight=False, markup=False)
    console.print(f"\nWhy ({NOT_MEASURED}):", style="bold", highlight=False)
    for rule in advice.rules:
        console.print(f"• {rule.advice}", highlight=False)
        console.print(f"  {rule.evidence} [{rule.source}]", style="dim", highlight=False)
    if advice.facts.assumed:
        console.print(f"\nTaken as given: {'; '.join(advice.facts.assumed)}.", style="dim", highlight=False)
    console.print("\nTo find out on your data:", style="bold")
    for text in commands(advice, said):
        console.print(f"  {text}", highlight=False, soft_wrap=True)


def markdown(advice: Advice, said: Said) -> str:
    """The advice as a document."""
    lines = [f"# Advice for {Path(said.what).stem}", ""]
    lines += [
        f"- {text}"
        for text in (sizes_in_words(advice.facts), unlike_in_words(advice.facts), work_in_words(advice.facts))
    ]
    lines += ["", f"**{choice_in_words(advice)}**", "", f"To the target, {NOT_MEASURED}:", ""]
    lines += [
        markdown_table(HEADS, rows_of(advice)),
        "",
        clock_in_words(advice),
        *skipped(advice.refused),
        "",
        f"## Why ({NOT_MEASURED})",
        "",
    ]
    lines += [f"- {rule.advice} {rule.evidence} ({rule.source})" for rule in advice.rules]
    lines += [
        "",
        "## Taken as given",
        "",
        *(f"- {text}" for text in advice.facts.assumed),
        "",
        "## To find out",
        "",
        "```sh",
    ]
    return "\n".join([*lines, *commands(advice, said), "```", ""])


def tables() -> dict[str, str]:
    """The tables of docs/advise.md that are read off the code."""
    rules = [
        [rule.name, rule.when, rule.advice, tried(rule.tries, rule.without), rule.evidence, rule.source]
        for rule in RULES
    ]
    speeds = [[f"`{row.method}`", row.when, f"{row.low:g} … {row.high:g}", row.source] for row in SPEEDS]
    speeds += [[f"`{name}`", "always", f"as `{like}`", borrowed(f"`{like}`")] for name, like in LIKE.items()]
    return {
        "rules": markdown_table(["rule", "when", "advice", "short-list", "evidence", "source"], rules),
        "speeds": markdown_table(["method", "when", "times fewer rounds than FedAvg", "source"], speeds),
    }


def tried(more: Sequence[str], fewer: Sequence[str]) -> str:
    """What a rule does to the short-list."""

    def parts() -> Iterator[str]:
        if more:
            yield "tries " + ", ".join(f"`{name}`" for name in more)
        if fewer:
            yield "without " + ", ".join(f"`{name}`" for name in fewer)

    return "; ".join(parts()) or "–"


def main(paths: Sequence[str]) -> None:
    """Renew these tables in the documents given."""
    for path in map(Path, paths):
        files.write(path, filled(path.read_text(encoding="utf-8"), tables()).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
