"""Merging only now and then: in between, every slot keeps its own baton and the weight it has gathered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fedrelay.data.examples import Store
from fedrelay.errors import within
from fedrelay.merges.mean import weight
from fedrelay.tasks import Task
from fedrelay.types import Baton, Chain, Merge, Outcome, State, Tree, Vector, Work


@dataclass(frozen=True)
class Every(Merge):
    """Merge the slots' latest batons every `period` rounds (None: as many rounds as there are groups); chains that are
    still running then are given up, and all slots begin anew (FedSeq 2022, Alg. 1; FedSeq journal 2024, Fig. 5).

    The merge sees one outcome per slot: everything that happened to its baton since the last time. Vectors that clients
    sent besides it are summed: one of each kind is kept, however many clients sent one and however long it is.
    """

    merge: Merge
    period: int | None = None

    def __post_init__(self) -> None:
        if self.period is not None:
            within("period", self.period, least=1)

    def fitted(self, task: Task, seed: int, /) -> Every:
        return replace(self, merge=self.merge.fitted(task, seed))

    def trained_like(self, local: Work, /) -> Every:
        return replace(self, merge=self.merge.trained_like(local))

    def with_root(self, held_out: Store | None, /) -> Every:
        return replace(self, merge=self.merge.with_root(held_out))

    @property
    def least_chains(self) -> int:
        return self.merge.least_chains

    @property
    def condition(self) -> str:
        return self.merge.condition

    def init(self, params: Vector, clients: int, /) -> tuple[Tree, Tree]:
        shared, server = self.merge.init(params, clients)
        return shared, {"merge": server, "merged": params, "rounds": 0, "slots": {}}

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        server = state.server
        slots = {**server["slots"]}
        merged = Baton(server["merged"])
        for outcome in outcomes:
            number = outcome.chain.slot
            slots[number] = followed(slots.get(number), outcome, merged)
        rounds = server["rounds"] + 1
        if rounds < self.rounds(state):
            slots = {number: summed(outcome) for number, outcome in slots.items()}
            # A slot whose chains were all lost keeps the merged model, as one of its own.
            count = max(state.slots, 1 + max(*slots, *(outcome.chain.slot for outcome in state.waiting), 0))
            batons = tuple(baton_of(slots.get(number), merged) for number in range(count))
            return replace(state, batons=batons, server={**server, "rounds": rounds, "slots": slots})
        before = replace(state, batons=(merged,), server=server["merge"], waiting=())
        after = self.merge(before, [slots[number] for number in sorted(slots)])
        kept = {"merge": after.server, "merged": after.batons[0].params, "rounds": 0, "slots": {}}
        return replace(after, server=kept)

    def rounds(self, state: State) -> int:
        """How many rounds there are between two merges."""
        return state.groups if self.period is None else self.period


def baton_of(outcome: Outcome | None, merged: Baton) -> Baton:
    """What a slot goes on with: its latest baton, with what it would count in a merge now."""
    return merged if outcome is None else Baton(outcome.baton.params, weight(outcome))


def followed(before: Outcome | None, outcome: Outcome, merged: Baton) -> Outcome:
    """A slot's whole way since the last merge: what was known of it, followed by this outcome."""
    chain, seen = outcome.chain, outcome.baton.weight - outcome.chain.start.weight
    if before is None:
        return replace(outcome, chain=replace(chain, start=merged), baton=Baton(outcome.baton.params, seen), dropped=())
    given = None if chain.weight is None else chain.weight + (before.chain.weight or 0.0)
    return replace(
        before,
        chain=Chain(merged, before.chain.clients + chain.clients, chain.slot, given),
        baton=Baton(outcome.baton.params, before.baton.weight + seen),
        reports=before.reports + outcome.reports,
    )


def summed(outcome: Outcome) -> Outcome:
    """The outcome with the sum of all vectors of a kind in its last report, and none in the others."""
    total: dict[str, Vector] = {}
    for report in outcome.reports:
        for key, value in report.uplink.items():
            if isinstance(value, torch.Tensor):
                total[key] = total[key] + value if key in total else value
    if not total:
        return outcome
    bare = [
        replace(report, uplink={key: value for key, value in report.uplink.items() if key not in total})
        for report in outcome.reports
    ]
    bare[-1] = replace(bare[-1], uplink={**bare[-1].uplink, **total})
    return replace(outcome, reports=tuple(bare))
