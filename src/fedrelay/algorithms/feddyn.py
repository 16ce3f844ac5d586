"""FedDyn: a regulariser that moves until local and global optima agree (FedSeq 2022, App. F)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fedrelay.algorithms.change import Change
from fedrelay.errors import within
from fedrelay.merges.mean import change, mean_model, moved, plain_weight
from fedrelay.tasks import Task
from fedrelay.types import Merge, Outcome, State, Tree, Vector, Visit
from fedrelay.visits.terms import Effect, Force, Term, recall


def feddyn(*, alpha: float = 0.1, linear: bool = True) -> Change:
    """Clients stay near the model received and remember their gradient, so that all agree at the optimum of everybody.

    When clients are unlike and come back often: each keeps a vector as large as the model, and nothing more travels.

    Papers: alpha 0.1; with fedseqinter 1 (FedSeq 2022); 0.001 to 0.015 (its authors, later)

    Args:
        alpha: how strongly clients are held to the model received, and how much of their gradient is remembered.
        linear: whether the remembered gradient acts; false is what the code published with FedSeq does.

    Reference: [Acar et al. 2021](https://arxiv.org/abs/2111.04263)
    """
    return Change(terms=(Dynamic(alpha, linear),), merge=DynamicMerge(alpha))


@dataclass(frozen=True)
class Dynamic(Term):
    """The client half: minimise L(θ) - ⟨g, θ⟩ + α/2 ‖θ - received‖², then g ← g - α (θ - received), once per visit
    (FedSeq 2022, Eq. 8).

    Paper: Eq. 6 prints a plus before the linear term; Eq. 8 and FedDyn's own paper have the minus, which is right.
    In the code published with FedSeq the linear term has no gradient: `linear` = false.
    """

    alpha: float = 0.1
    linear: bool = True

    def __post_init__(self) -> None:
        within("alpha", self.alpha, above=0)

    @property
    def keeps(self) -> tuple[str, ...]:
        return ("gradient",) if self.linear else ()

    @property
    def gradients(self) -> tuple[str, ...]:
        return self.keeps

    def begin(self, received: Vector, visit: Visit, /) -> Effect:
        received = visit.weights(received)
        if not self.linear:
            return Effect(Force(self.alpha, received))
        return Effect(Force(self.alpha, received, -recall(visit.memory, "gradient", received)))

    def specimen(self, task: Task, /) -> Tree:
        return {}

    def end(self, received: Vector, trained: Vector, visit: Visit, /, *, steps: float, lr: float) -> tuple[Tree, Tree]:
        if not self.linear:
            return visit.memory, {}
        received, trained = visit.weights(received), visit.weights(trained)
        new = recall(visit.memory, "gradient", received) - self.alpha * (trained - received)
        return {**visit.memory, "gradient": new}, {}


@dataclass(frozen=True)
class DynamicMerge(Merge):
    """The server half: h ← h - α/m Σ (θ_k - θ), θ ← mean(θ_k) - h/α, over chains as over clients, where m counts all
    clients (FedSeq 2022, Eqs. 7 and 9-10). What the clients of a chain did adds up to what the chain did, so h stays
    the mean of all g.

    Paper: Eqs. 7 and 9 print one round's -1/m Σ (θ_k - θ) in place of -h/α. That has the other sign and forgets earlier
    rounds, so its rest is not the optimum; FedDyn's own paper and the published code have h.
    """

    alpha: float = 0.1

    def __post_init__(self) -> None:
        within("alpha", self.alpha, above=0)

    @property
    def needs_everyone(self) -> bool:
        return True

    def init(self, params: Vector, clients: int, /) -> tuple[Tree, Tree]:
        return {}, {"h": torch.zeros_like(params), "clients": clients}

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        h = state.server["h"].clone()
        for outcome in outcomes:
            h.sub_(change(outcome), alpha=self.alpha / state.server["clients"])
        after = moved(state, mean_model(outcomes, plain_weight) - h / self.alpha, outcomes)
        return replace(after, server={**state.server, "h": h})
