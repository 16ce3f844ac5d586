"""Advice: what is known, which rules hold, what to try first, and what that may cost."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import tomli_w

from fedrelay import config
from fedrelay.config.experiment import Experiment
from fedrelay.errors import BadInput
from fedrelay.studies.advise.facts import KEPT, Facts, Wishes, known
from fedrelay.studies.advise.round_costs import Shape, break_even, messages, seconds
from fedrelay.studies.advise.rules import Rule, applied
from fedrelay.studies.advise.shortlist import Candidate, Range, candidate, shortlist, visits_of
from fedrelay.studies.overrides import merged

NOT_MEASURED = "published, not measured on your data"


@dataclass(frozen=True)
class Predicted:
    """What reaching the target may take: from the best that was published to the worst."""

    rounds: Range
    traffic: Range
    """Bytes, whoever sends them."""
    seconds: Range


@dataclass(frozen=True)
class Advice:
    """What to try first, and why."""

    facts: Facts
    rules: tuple[Rule, ...]
    candidates: tuple[Candidate, ...]
    """The likely cheapest first."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Methods that do not go with what [algorithm] says for all, and why."""

    @property
    def first(self) -> Candidate:
        return self.candidates[0]

    def predicted(self, one: Candidate) -> Predicted:
        """In rounds, bytes and seconds, where FedAvg needs the rounds that it is taken to need."""
        facts = self.facts
        rounds = one.cost["rounds"].times(facts.rounds)
        sent = sum(messages(one.shape, visits_of(one.shape, facts))) * facts.model_bytes
        spent = one.cost["time"].times(facts.rounds * seconds(Shape(), facts.taking_part, facts.line))
        return Predicted(Range(max(rounds.low, 1), max(rounds.high, 1)), rounds.times(sent), spent)

    @property
    def break_even(self) -> float | None:
        """How many times fewer rounds chains must need to be as fast as FedAvg on the clock."""
        if self.facts.clients < 2 or self.facts.reach == "none":
            return None
        shape = Shape(self.facts.chain, relayed=self.facts.reach == "server")
        return break_even(shape, self.facts.taking_part, self.facts.line)

    def as_record(self) -> dict[str, Any]:
        """For machines."""
        facts = asdict(self.facts) | {"excess": self.facts.excess, "level": self.facts.level, "chain": self.facts.chain}
        return {
            "facts": facts,
            "rules": [
                {"name": r.name, "when": r.when, "advice": r.advice, "evidence": r.evidence, "source": r.source}
                for r in self.rules
            ],
            "evidence_is": NOT_MEASURED,
            "break_even": self.break_even,
            "candidates": [
                {
                    "method": one.method,
                    "algorithm": dict(one.algorithm),
                    "local": dict(one.local),
                    "try": {one.key: list(one.values)},
                    "because_of": list(one.rules),
                    "rounds_saved": {"low": one.speed.low, "high": one.speed.high, "source": one.speed.source},
                    "predicted": asdict(self.predicted(one)),
                }
                for one in self.candidates
            ],
            "refused": dict(self.refused),
        }


def advise(
    tables: Mapping[str, Any], wishes: Wishes = Wishes(), data_dir: Path | str | None = None
) -> tuple[Advice, Experiment]:
    """Advice for the federation of a configuration, and the configuration as FedAvg would run it."""
    facts, experiment = known(tables, wishes, data_dir)
    rules = applied(facts)
    listed, refused = fitting(tables, shortlist(facts, rules), experiment)
    if not listed:  # FedAvg goes with it: the experiment is that
        listed = [with_kept(tables, candidate("fedavg", facts))]
    return Advice(facts, tuple(rules), tuple(listed), refused), experiment


def skipped(refused: Mapping[str, str]) -> list[str]:
    """A line for every method that is left out."""
    return [f"{method} is left out: {why}" for method, why in refused.items()]


def with_kept(tables: Mapping[str, Any], one: Candidate) -> Candidate:
    """The candidate with what [algorithm] says whatever the method is; where there is one client nobody is drawn, and
    where there is privacy groups are random."""
    section = config.section_of(tables, "algorithm")
    kept = {key: section[key] for key in KEPT if key in section and (one.method, key) != ("centralized", "sampler")}
    told = ("traits",) if "privacy" in kept else ()  # what clients tell to be grouped by is of their examples
    return replace(one, algorithm={key: one.algorithm[key] for key in one.algorithm if key not in told} | kept)


def fitting(
    tables: Mapping[str, Any], candidates: Sequence[Candidate], experiment: Experiment
) -> tuple[list[Candidate], dict[str, str]]:
    """The candidates with what the user wants of all methods; and those that refuse it, with their reasons."""
    found, refused = [], dict[str, str]()
    for one in candidates:
        whole = with_kept(tables, one)
        try:
            if whole != one:
                config.build(tables_for(tables, whole), experiment.data_dir, federation=experiment.clients)
            found.append(whole)
        except BadInput as error:
            refused[one.method] = str(error)
    return found, refused


def tables_for(tables: Mapping[str, Any], one: Candidate, value: float | None = None) -> config.Tables:
    """The configuration with this method, and with one value of what is tried (default: the one in the middle)."""
    base = {key: part for key, part in tables.items() if key != "algorithm"}
    changed, _ = merged(base, {"algorithm": dict(one.algorithm), "local": dict(one.local)})
    chosen = one.values[len(one.values) // 2 if len(one.values) % 2 else 1] if value is None else value
    return config.with_values(changed, {one.key: chosen})


def command(one: Candidate, file: str, own: Sequence[str] = ()) -> str:
    """What to type to find the best value of a candidate; `own` are the user's options that count for it too."""
    sets = [f"algorithm={inline(one.algorithm)}", *(f"local.{key}={value}" for key, value in one.local.items())]
    words = [*own, *(word for text in sets for word in ("--set", text))]  # the advised ones last, so that they count
    values = ",".join(f"{value:g}" for value in one.values)
    tried = ["--lr", values] if one.key == "local.lr" else ["--over", f"{one.key}={values}"]
    return shlex.join(["fedrelay", "tune", file, *words, *tried, "--out", f"runs/tune-{one.method}"])


def inline(value: Any) -> str:
    """A value or a table on one line, as TOML has it."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{inline_key(key)} = {inline(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(inline, value)) + "]"
    return tomli_w.dumps({"x": value}).strip().removeprefix("x = ")


def inline_key(key: str) -> str:
    return tomli_w.dumps({key: 0}).strip().removesuffix(" = 0")
