"""What clients elsewhere have taken, where a run has some: seconds of their visits and bytes, client by client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from fedrelay.report import measures
from fedrelay.runs.folder import Run

MOST = 50
"""Clients of a run that are listed: those that took longest."""


@dataclass(frozen=True)
class Line:
    """One client of a run; seconds are the median of its visits, in words."""

    run: int
    name: str
    visits: int
    training: str
    transfer: str
    waiting: str
    sent: str
    received: str


def lines(runs: Sequence[Run]) -> list[Line]:
    """The clients of all runs whose clients were elsewhere."""
    found = []
    for place, run in enumerate(runs):
        visits = sorted(visits_of(run).items(), key=lambda item: -sum(hop["training"] for hop in item[1]))
        found += [line_of(place, run, client, hops) for client, hops in visits[:MOST]]
    return found


def visits_of(run: Run) -> dict[int, list[Mapping[str, Any]]]:
    """All hops by client."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for log in run.rounds:
        for hop in log.wire.get("hops", ()):
            found.setdefault(hop["client"], []).append(hop)
    return found


def line_of(place: int, run: Run, client: int, hops: Sequence[Mapping[str, Any]]) -> Line:
    seconds = {part: f"{median(hop[part] for hop in hops):.3f}" for part in ("training", "transfer", "waiting")}
    mine = [one for log in run.rounds for one in log.wire.get("clients", ()) if one["client"] == client]
    traffic = {way: size(sum(one[way] for one in mine)) for way in ("sent", "received")}
    return Line(place, called(run, client), len(hops), **seconds, **traffic)


def size(total: int) -> str:
    divisor, unit = measures.unit(total)
    return f"{total / divisor:.3g} {unit}"


def called(run: Run, client: int) -> str:
    """The client's name, if the configuration of the run has it."""
    engine = run.config.get("engine", {})
    names = engine.get("clients", ()) if isinstance(engine, dict) else ()
    return str(names[client]) if isinstance(names, list) and client < len(names) else f"client {client}"
