"""Who trained after whom in a round, from what rounds have written of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedrelay.runs.folder import Run
from fedrelay.runs.labels import read_labels

MOST_VISITS = 60_000
"""On a page: of more, every second round is shown, or every third …"""
MOST_CLIENTS = 20_000
"""Of more clients the main classes are not shown."""


def orders(runs: Sequence[Run], names: Sequence[str]) -> list[dict[str, Any]]:
    """The chains of every run that has written them: rounds, chains and lost visits of each, and main classes."""
    visits = sum(len(chain) for run in runs for log in run.rounds for chain in log.order)
    step = -(-visits // MOST_VISITS) or 1
    found = []
    for place, (run, name) in enumerate(zip(runs, names, strict=True)):
        told = [log for log in run.rounds if log.order][::step]
        if not told:
            continue
        labels = read_labels(run.folder)
        known = labels is not None and len(labels.main) <= MOST_CLIENTS
        found.append(
            {
                "run": place,
                "name": name,
                "rounds": [log.round for log in told],
                "chains": [log.order for log in told],
                "lost": [[[drop.chain, drop.hop] for drop in log.drops] for log in told],
                "attacked": [[[hit.chain, hit.hop] for hit in log.attacked] for log in told],
                "main": list(labels.main) if labels is not None and known else [],
                "classes": list(labels.classes) if labels is not None and known else [],
            }
        )
    return found
