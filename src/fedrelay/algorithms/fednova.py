"""FedNova: what clients did is normalised by how many steps they took, so that nobody counts more by working longer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedrelay.algorithms.change import Change
from fedrelay.merges.mean import change, mean, moved, weight
from fedrelay.tasks import Task
from fedrelay.types import Merge, Outcome, State, Tree, Vector, Visit
from fedrelay.visits.terms import Term


def fednova() -> Change:
    """Every model's way is divided by its number of steps before the mean, which then goes the mean number of steps.

    When clients of unlike size or speed take unlike numbers of steps: FedAvg's rest is then not the optimum of
    everybody, FedNova's is nearer; clients keep nothing.

    Reference: [Wang et al. 2020](https://arxiv.org/abs/2007.07481), Eqs. 6-7 and Alg. 1
    """
    return Change(terms=(CountSteps(),), merge=NormalisedMean())


@dataclass(frozen=True)
class CountSteps(Term):
    """The client half: it says how many plain steps it took (‖a‖₁, which momentum makes more than their number)."""

    reads_steps: ClassVar[bool] = True
    sends: ClassVar[bool] = True

    def specimen(self, task: Task, /) -> Tree:
        return {"steps": 1.0}

    def end(self, received: Vector, trained: Vector, visit: Visit, /, *, steps: float, lr: float) -> tuple[Tree, Tree]:
        return visit.memory, {"steps": steps}


@dataclass(frozen=True)
class NormalisedMean(Merge):
    """The server half: x ← x + (Σ p_i τ_i) Σ p_i (y_i - x) / τ_i, where p_i is the share of examples and τ_i the steps.

    A chain takes the steps of all its clients. With equal steps this is the mean by examples.
    """

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        steps = [sum(report.uplink["steps"] for report in outcome.reports) for outcome in outcomes]
        weights = [weight(outcome) for outcome in outcomes]
        ways = [change(outcome) / taken for outcome, taken in zip(outcomes, steps, strict=True)]
        effective = sum(w * taken for w, taken in zip(weights, steps, strict=True)) / sum(weights)
        return moved(state, state.batons[0].params + effective * mean(ways, weights), outcomes)
