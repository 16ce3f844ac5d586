"""Columns of what runs cost: messages by direction, and time and traffic by FedGSP's formulas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedrelay.report import measures as of_run
from fedrelay.runs.folder import Run
from fedrelay.studies.reproduce.finished import Finished, Reading, by_run

Direction = Literal["server_to_client", "client_to_server", "client_to_client", "total"]


@dataclass(frozen=True)
class Messages:
    """How many were sent in this direction: a round, on average, or in all rounds (FedSeq journal 2024, Table 3)."""

    direction: Direction = "total"
    all_rounds: bool = False

    def __call__(self, found: Finished, row: str, /) -> list[Reading]:
        return by_run(found, row, self.of)

    def of(self, run: Run) -> Reading:
        if not run.rounds:
            return Reading()
        split = of_run.split(run, "messages")
        count = sum(split.values()) if self.direction == "total" else split[self.direction]
        return Reading(count if self.all_rounds else count / len(run.rounds))


@dataclass(frozen=True)
class Estimated:
    """T_comp, T_comm or D_comm (FedGSP 2022, Eqs. 15-17) of a run that has ended, T_comp and T_comm together
    (`seconds`), or the share of T_comm in them: of all its rounds, or of those until a `share` of the target was
    reached."""

    what: Literal["computing_seconds", "communication_seconds", "traffic_bytes", "seconds", "communication_share"]
    share: float | None = None

    def __call__(self, found: Finished, row: str, /) -> list[Reading]:
        return by_run(found, row, self.of)

    def of(self, run: Run) -> Reading:
        if run.summary is None:
            return Reading()
        whole = self.from_parts(run.summary.estimates)
        if self.share is None:
            return Reading(whole)
        key = f"{self.share:g}"
        until = self.from_parts({what: shares.get(key) for what, shares in run.summary.estimates_to.items()})
        if until is None and self.what != "communication_share":  # a share does not grow with the rounds
            return Reading(beyond=whole)
        return Reading(until)

    def from_parts(self, estimates: Mapping[str, float | None]) -> float | None:
        """What is asked for, from what a run has estimated."""
        if self.what not in ("seconds", "communication_share"):
            return estimates.get(self.what)
        computing, communication = (estimates.get(f"{part}_seconds") for part in ("computing", "communication"))
        if computing is None or communication is None:
            return None
        both = computing + communication
        if self.what == "seconds":
            return both
        return communication / both if both else None
