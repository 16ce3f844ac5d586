"""The table of the page docs/reliability.md, from the tallies; nothing in it is typed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tally import Tally

BEGIN, END = "<!-- attack: begin -->", "<!-- attack: end -->"


def write(path: Path, whats: Mapping[str, str], tallies: Mapping[str, Tally], facts: Mapping[str, Any]) -> None:
    """Put the table between its marks; the rest of the page is left as it is."""
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{path} has no marks {BEGIN} and {END} to put the table between")
    path.write_text(f"{before}{BEGIN}\n{table(whats, tallies, facts)}{END}{after}", encoding="utf-8")


def table(whats: Mapping[str, str], tallies: Mapping[str, Tally], facts: Mapping[str, Any]) -> str:
    lines = ["| attack | tried | held | broke | remark |", "| --- | --: | --: | --: | --- |"]
    for name, what in whats.items():
        row = tallies.get(name)
        if row is not None:
            lines.append(f"| {what} | {row.tried:,} | {row.held:,} | {row.broke:,} | {remark(row)} |")
    return "\n".join([*lines, "", about(facts), *problems(whats, tallies), ""])


def remark(row: Tally) -> str:
    """What was measured, and whether time ran out."""
    said = [f"{value:.0f} {name}" for name, value in row.figures.items()]
    if row.out_of_time:
        said.append(f"time ran out before all {row.wanted:,}")
    return ", ".join(said)


def about(facts: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {found}" for name, found in facts["versions"].items())
    fuzzer = "guided by coverage (atheris)" if facts["guided"] else "by random changes (atheris was not installed)"
    return (
        f"{facts['date']}, {facts['minutes']:.0f} minutes on {facts['cores']} cores of {facts['processor']} with "
        f"{facts['memory_gb']} GB, {facts['system']}, Python {facts['python']}; {versions}; seed {facts['seed']}; data "
        f"files were damaged {fuzzer}.\n"
    )


def problems(whats: Mapping[str, str], tallies: Mapping[str, Tally]) -> list[str]:
    """What broke, in the words of the attack."""
    found = [
        f"- {name}: `{one.replace('`', chr(39))[:300]}`"
        for name in whats
        if name in tallies
        for one in tallies[name].problems
    ]
    return ["What broke:\n", *(line.replace("\n", " ") for line in found), ""] if found else []
