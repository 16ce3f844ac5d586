"""Whether the advice is any good: its first choice beside every other method, on many federations, at tuned rates.

`python -m fedrelay.studies.advise.validate experiments/advise.toml --data-dir DATA --page docs/advise.md` does what is
not done yet and writes the tables into the page. On every federation all methods are raced on one seed to find their
best learning rates, the advised ones and those beyond if the outermost is best; then each runs at its best rate on
seeds that nothing was chosen by. The target is 95 % of what FedAvg has there at the end.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from fedrelay.errors import BadInput
from fedrelay.studies.advise.advice import Advice, advise
from fedrelay.studies.advise.facts import Facts, Wishes
from fedrelay.studies.advise.outcome import amount, outcome_of
from fedrelay.studies.advise.race import raced
from fedrelay.studies.advise.rules import DIRECT, STATEFUL
from fedrelay.studies.advise.shortlist import Candidate, candidate
from fedrelay.studies.markdown import markdown_table
from fedrelay.studies.marks import filled
from fedrelay.system import files
from fedrelay.system.console import PlainConsole

BASELINES = ("fedavg", "fedavgm", "fedadam", "feddyn", "scaffold", "fedseq", "fedcyclic", "fedseq+feddyn")
"""Methods that run everywhere, whatever the advice, unless clients cannot do what they need."""
NEAR = 0.10
"""A choice is right if it costs at most so much more than the best."""
RECORD = "validation.json"
OWN = ("about", "wishes", "seeds")


@dataclass(frozen=True)
class Judged:
    """One federation: what was advised, and what every method took to the target."""

    name: str
    about: str
    facts: Mapping[str, Any]
    by: str
    advised: tuple[str, ...]
    costs: Mapping[str, float | None]
    priced: bool = False

    @property
    def best(self) -> str | None:
        reached = {method: cost for method, cost in self.costs.items() if cost is not None}
        return min(reached, key=lambda method: reached[method]) if reached else None

    @property
    def regret(self) -> float | None:
        """How much more than the best the first choice took; None if it never got there."""
        return self.above(self.advised[0])

    def above(self, method: str) -> float | None:
        """How much more than the best a method took."""
        own, best = self.costs.get(method), self.best
        lowest = None if best is None else self.costs[best]
        return None if own is None or not lowest else own / lowest - 1

    @property
    def right(self) -> bool:
        return self.regret is not None and self.regret <= NEAR


def methods_for(facts: Facts, advice: Advice) -> list[Candidate]:
    """The short-list and the baselines, without what these clients cannot do."""
    barred = {*(() if facts.state else STATEFUL), *(() if facts.reach == "direct" else DIRECT)}
    listed = {one.method: one for one in advice.candidates}
    others = [name for name in BASELINES if name not in barred and name not in listed]
    return [*listed.values(), *(candidate(name, facts) for name in others)]


Costs = dict[str, float | None]
"""What every method took to the target; None if it never got there."""


def measure(table: Mapping[str, Any], out: Path, live: Console, data_dir: Path | None) -> Costs:
    """Tune every method on one seed, then run each on seeds of its own."""
    tables, seeds = configuration(table), list(table.get("seeds", (1, 2)))
    advice = advised(table, data_dir)
    facts, rounds = advice.facts, int(tables["rounds"])
    candidates = methods_for(facts, advice)
    tuned = raced(tables, facts, candidates, out / "tuned", live, rounds=rounds, each=True, data_dir=data_dir)
    chosen = [replace(one.entry.candidate, values=(one.value,)) for one in outcome_of(tuned).standings]
    final = raced(tables, facts, chosen, out / "judged", live, rounds=rounds, each=True, seeds=seeds, data_dir=data_dir)
    return {one.method: one.cost for one in outcome_of(final).standings}


def configuration(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in OWN}


def advised(table: Mapping[str, Any], data_dir: Path | None) -> Advice:
    """What the rules of today say of a federation."""
    return advise(configuration(table), Wishes(**table.get("wishes", {})), data_dir)[0]


def judge(name: str, table: Mapping[str, Any], costs: Costs, data_dir: Path | None) -> Judged:
    """The advice beside what was measured."""
    advice = advised(table, data_dir)
    facts, names = advice.facts, tuple(one.method for one in advice.candidates)
    told = {key: getattr(facts, key) for key in ("clients", "classes", "h", "excess", "level", "fraction")}
    return Judged(name, str(table["about"]), told, facts.by, names, costs, facts.prices != (1.0, 1.0))


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The federations of a file: what [all] says of every one, and what each says of itself."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{path} cannot be read as a TOML file of federations: {error}") from None
    every, found = content.get("all", {}), content.get("federations", {})
    if not found:
        raise BadInput(f"{path} has no federations: add a table [federations.NAME] for each")
    return {name: {**every, **table} for name, table in found.items()}


def page(results: Sequence[Judged], missing: Sequence[str] = ()) -> dict[str, str]:
    """The tables of the document, by the names of their places."""
    rest = f"\n\nIn the file, but not measured yet: {'; '.join(missing)}." if missing else ""
    return {"validation": overview(results) + rest, "wrong": wrong(results)}


def overview(results: Sequence[Judged]) -> str:
    """One row a federation."""
    rows = []
    for one in results:
        h = one.facts["h"]
        unlike = "classes not known" if h is None else f"{h:.2f} ({one.facts['excess']:.2f})"
        rows.append(
            [
                one.about,
                f"{one.facts['clients']}, {one.facts['fraction']:.2g}",
                unlike,
                one.by,
                f"`{one.advised[0]}`",
                cost_of(one, one.advised[0]),
                "–" if one.best is None else f"`{one.best}`",
                "–" if one.best is None else cost_of(one, one.best),
                "not reached" if one.regret is None else f"+{one.regret:.0%}",
                "yes" if one.right else "**no**",
            ]
        )
    columns = ["federation", "clients, fraction", "h (beyond chance)", "by", "first choice", "took", "best", "took"]
    table = markdown_table([*columns, "above the best", "within 10 %"], rows)
    good = sum(one.right for one in results)
    listed = sum(bool(one.best in one.advised) for one in results)
    always = {
        method: sum(1 for one in results if (above := one.above(method)) is not None and above <= NEAR)
        for method in BASELINES
    }
    fixed = ", ".join(f"`{method}` {count}" for method, count in sorted(always.items(), key=lambda item: -item[1]))
    return (
        f"**The first choice is within 10 % of the best in {good} of {len(results)} federations; the best method is on "
        f"the short-list in {listed}.** Always taking the same method would have been right so often: {fixed}."
        f"\n\n{table}"
    )


def wrong(results: Sequence[Judged]) -> str:
    """Where the first choice is not within 10 %, and what every method took there."""
    lines = []
    for one in results:
        if not one.right:
            costs = sorted(one.costs.items(), key=lambda item: (item[1] is None, item[1] or 0.0))
            told = ", ".join(f"`{method}` {cost_of(one, method)}" for method, _ in costs)
            lines.append(f"- **{one.about}** (by {one.by}): advised `{one.advised[0]}`. {told}.")
    return "\n".join(lines) or "Nowhere."


def cost_of(one: Judged, method: str) -> str:
    cost = one.costs[method]
    return "not reached" if cost is None else amount(cost, one.by, one.priced)


def main(argv: Sequence[str] | None = None) -> int:
    """Judge every federation of a file, and write what came out into a page."""
    parser = argparse.ArgumentParser(description="Judge the advice on many federations.")
    parser.add_argument("file", type=Path, help="a TOML file of federations")
    parser.add_argument("--out", type=Path, default=Path("runs/advise"), help="where runs go, and what was found")
    parser.add_argument("--data-dir", type=Path, help="where data sets lie")
    parser.add_argument("--page", type=Path, help="a document with places for the tables")
    parser.add_argument("--only", help="federations, with commas between")
    parser.add_argument("--measured", action="store_true", help="run nothing: the page has what was measured before")
    options = parser.parse_args(argv)
    live, found, missing = PlainConsole(stderr=True), list[Judged](), list[str]()
    federations = read(options.file)
    wanted = options.only.split(",") if options.only else list(federations)
    for name in wanted:
        place = options.out / name / RECORD
        if options.measured and not place.exists():
            missing.append(str(federations[name]["about"]))
            continue
        if not place.exists():
            costs = measure(federations[name], options.out / name, live, options.data_dir)
            files.write(place, (json.dumps({"costs": costs}, indent=2) + "\n").encode())
        costs = json.loads(place.read_text(encoding="utf-8"))["costs"]
        last = judge(name, federations[name], costs, options.data_dir)
        found.append(last)
        live.print(f"{name}: {last.advised[0]} {last.costs[last.advised[0]]}, best {last.best}", highlight=False)
    if options.page:
        text = options.page.read_text(encoding="utf-8")
        files.write(options.page, filled(text, page(found, missing)).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
