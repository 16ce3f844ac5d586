"""SCAFFOLD: control variates take the drift of unlike clients away (Alg. 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch

from fedrelay.algorithms.change import Change
from fedrelay.errors import BadInput, within
from fedrelay.merges.mean import mean_change, moved, plain_weight
from fedrelay.tasks import EVALUATION_BATCH, Task
from fedrelay.types import Merge, Outcome, State, Tree, Vector, Visit
from fedrelay.visits.terms import Effect, Force, Term, recall

Option = Literal["I", "II"]


def scaffold(*, option: Option = "II", server_lr: float = 1.0) -> Change:
    """Every step is corrected by how the client's gradient differs from everybody's, which clients and server track.

    When clients are unlike and come back often: each keeps a vector as large as the model, and twice as much travels.

    Papers: option I, server_lr 1 (FedSeq's authors)

    Args:
        option: whether a client's control variate is its gradient at the received model (I, which costs a pass over
            the data) or the mean gradient of its visit (II).
        server_lr: the server's step.

    Reference: [Karimireddy et al. 2020](https://arxiv.org/abs/1910.06378), Alg. 1
    """
    return Change(terms=(Control(option),), merge=ControlMerge(server_lr))


@dataclass(frozen=True)
class Control(Term):
    """The client half: the gradient gets c - c_i. Afterwards c_i is the gradient at the received model (option I, which
    costs a pass over the data), or the mean gradient of the visit, c_i - c + (x - y) / (K lr) (option II).
    """

    option: Option = "II"
    sends: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.option not in ("I", "II"):
            raise BadInput(f"option must be I or II, not {self.option!r}")

    @property
    def reads_steps(self) -> bool:  # type: ignore[override]  # only option II takes the way for a sum of gradients
        return self.option == "II"

    @property
    def keeps(self) -> tuple[str, ...]:
        return ("control",)

    @property
    def gradients(self) -> tuple[str, ...]:
        return self.keeps

    def begin(self, received: Vector, visit: Visit, /) -> Effect:
        received = visit.weights(received)
        return Effect(Force(shift=everybodys(received, visit) - recall(visit.memory, "control", received)))

    def specimen(self, task: Task, /) -> Tree:
        return {"control": torch.empty(task.layout.trainable, device="meta")}

    def end(self, received: Vector, trained: Vector, visit: Visit, /, *, steps: float, lr: float) -> tuple[Tree, Tree]:
        received, trained = visit.weights(received), visit.weights(trained)
        own = recall(visit.memory, "control", received)
        if self.option == "I":
            new = gradient_at(received, visit)
        elif lr:
            new = own - everybodys(received, visit) + (received - trained) / (steps * lr)
        else:
            new = own  # steps of length zero tell nothing of the gradient
        return {**visit.memory, "control": new}, {"control": new - own}


def everybodys(received: Vector, visit: Visit) -> Vector:
    """c, as the server shares it (as long as the whole model: buffers have no gradient)."""
    control: Vector = visit.shared["control"][: len(received)]
    return control


def gradient_at(weights: Vector, visit: Visit) -> Vector:
    """The gradient of the client's whole loss, without augmentation or dropout."""
    workspace, client = visit.workspaces.main, visit.client
    workspace.mode(training=False)
    workspace.weights.copy_(weights)
    total = torch.zeros_like(weights)
    for start in range(0, client.size, EVALUATION_BATCH):
        positions = torch.arange(start, min(start + EVALUATION_BATCH, client.size))
        workspace.differentiate(*client.take(positions, None))
        total.add_(workspace.gradient, alpha=len(positions) / client.size)
    return total


@dataclass(frozen=True)
class ControlMerge(Merge):
    """The server half: x ← x + lr · mean(y - x), c ← c + Σ (new c_i - c_i) / N over all N clients, so that c stays the
    mean of all c_i."""

    lr: float = 1.0

    def __post_init__(self) -> None:
        within("server_lr", self.lr, above=0)

    @property
    def needs_everyone(self) -> bool:
        return True

    def init(self, params: Vector, clients: int, /) -> tuple[Tree, Tree]:
        return {"control": torch.zeros_like(params)}, {"clients": clients}

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        control = state.shared["control"].clone()
        for outcome in outcomes:
            for report in outcome.reports:
                if "control" in report.uplink:  # reports of several rounds have theirs summed up in one
                    changed = report.uplink["control"]
                    control[: len(changed)].add_(changed, alpha=1 / state.server["clients"])
        after = moved(state, state.batons[0].params + self.lr * mean_change(outcomes, plain_weight), outcomes)
        return replace(after, shared={**state.shared, "control": control})
