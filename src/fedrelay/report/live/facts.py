"""What is shown of a run, in words and as plain data: the terminal and the page say the same."""

from __future__ import annotations

import math
from typing import Any

from fedrelay.report import federations, measures
from fedrelay.runs.costs import DIRECTIONS
from fedrelay.runs.following import FAILED, GOING, KILLED, STARTING, STOPPED, Glance
from fedrelay.runs.log import RoundLog
from fedrelay.runs.summary import tests_of
from fedrelay.runs.underway import Told

WORDS = {STOPPED: "stopped: it can go on", KILLED: "was killed: it can go on", STARTING: "starting"}
MOST_DROPS = 5


def status(glance: Glance) -> str:
    """How the run is, in a few words."""
    if glance.status == FAILED:
        return f"failed: {glance.why}"
    return WORDS.get(glance.status, glance.status)


def sent(log: RoundLog) -> int:
    """Bytes of a round in all directions."""
    return sum(log.bytes[key] for key in DIRECTIONS)


def traffic(glance: Glance) -> int:
    return sum(map(sent, glance.run.rounds))


def train_loss(glance: Glance) -> float | None:
    """Of the last round that has one."""
    return next((log.train_loss for log in reversed(glance.run.rounds) if log.train_loss is not None), None)


def test_loss(glance: Glance) -> float | None:
    return next((log.loss for log in reversed(glance.run.rounds) if log.loss is not None), None)


def drops(glance: Glance) -> list[dict[str, Any]]:
    """Everybody who was lost, the last first: how often, and where and why the last time."""
    found: dict[int, dict[str, Any]] = {}
    for log in reversed(glance.run.rounds):
        for drop in log.drops:
            where = {"client": drop.client, "round": log.round, "chain": drop.chain, "reason": drop.reason, "times": 0}
            found.setdefault(drop.client, where)["times"] += 1
    return list(found.values())


def chains_now(glance: Glance) -> list[Told]:
    """The chains of the present round that have said how far they are."""
    return [told for told in glance.underway if told.clients and "hop" in told.figures]


def facts(glance: Glance) -> dict[str, Any]:
    """All but the rounds, as plain data."""
    run = glance.run
    by = measures.headline_of(run)
    values = tests_of(run.rounds, by.name)
    left = glance.seconds_left
    return {
        "name": run.name,
        "folder": str(run.folder),
        "status": glance.status,
        "words": status(glance),
        "going": glance.status in GOING,
        "pid": glance.pid,
        "algorithm": measures.algorithm(run),
        "data": federations.in_words(run),
        "rounds": glance.done,
        "total": glance.total,
        "seconds_left": None if left is None else math.ceil(left),
        "seconds": sum(log.seconds for log in run.rounds),
        "metric": {"name": by.name, "words": measures.words(by.name), "share": by.share, "higher": by.higher_is_better},
        "value": values[-1] if values else None,
        "best": by.best(values),
        "train_loss": train_loss(glance),
        "loss": test_loss(glance),
        "bytes": traffic(glance),
        "clients_dropped": len(dropped := drops(glance)),
        "drops": dropped[:MOST_DROPS],
        "damaged": glance.damaged,
        "underway": [{"clients": list(one.clients), "hop": one.figures["hop"][0]} for one in chains_now(glance)],
    }
