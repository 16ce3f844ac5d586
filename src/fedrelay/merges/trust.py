"""Trust by comparison with training on a few clean examples of the server's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from fedrelay import seeds
from fedrelay.data.examples import Store
from fedrelay.data.federation import ClientData
from fedrelay.errors import BadInput, within
from fedrelay.kernels.workspace import Computing
from fedrelay.merges.mean import change, moved
from fedrelay.tasks import Task, Workspaces
from fedrelay.types import GIVEN, Merge, Outcome, State, Vector, Visit, Work
from fedrelay.vectors import weighted_sum

NOBODY = -1
"""The number of the client that the server is to itself."""


@dataclass(frozen=True)
class Trust(Merge):
    """The server trains on a root set of `examples` clean examples that nobody else has; a chain counts with the cosine
    between its change and the server's, or nothing if that is negative, and every change is made as long as the
    server's (FLTrust: Cao et al. 2021, Alg. 2).

    The root set is drawn from the validation set (`[data] validation`). The server trains as clients do, as many visits
    long as chains are on average: in the paper there is one.

    Args:
        examples: how many the root set has, if the validation set has so many.
    """

    examples: int = 100
    root: Store | None = field(default=None, compare=False, repr=False, metadata={GIVEN: True})
    local: Work | None = field(default=None, repr=False, metadata={GIVEN: True})
    task: Task | None = field(default=None, compare=False, repr=False, metadata={GIVEN: True})
    seed: int = field(default=0, metadata={GIVEN: True})

    def __post_init__(self) -> None:
        within("examples", self.examples, least=1)

    def fitted(self, task: Task, seed: int, /) -> Trust:
        if self.root is None:
            raise BadInput(
                "trust needs a root set, clean examples that no client has: in a configuration [data] validation = "
                "0.05 holds them out, in Python Trust(root=federation.validation) names them"
            )
        return replace(self, task=task, seed=seed)

    def trained_like(self, local: Work, /) -> Trust:
        return self if self.local is not None else replace(self, local=local)

    def with_root(self, held_out: Store | None, /) -> Trust:
        return self if self.root is not None else replace(self, root=held_out)

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        hops = round(sum(len(outcome.reports) for outcome in outcomes) / len(outcomes))
        own = self.trained(state, max(hops, 1))[: state.trainable]
        steps = [change(outcome)[: state.trainable] for outcome in outcomes]
        shares = trusted(steps, own)
        before = state.batons[0].params
        if not any(shares):  # nobody is trusted: nothing changes, not even running statistics
            return replace(state, batons=(replace(state.batons[0], weight=0.0),))
        return moved(state, before[: state.trainable] + weighted_sum(steps, shares), outcomes)

    def trained(self, state: State, hops: int) -> Vector:
        """The change that the server's own training makes."""
        assert self.root is not None
        assert self.local is not None
        assert self.task is not None
        rows = seeds.rng(self.seed, "root").permutation(len(self.root))[: self.examples]
        baton, device = state.batons[0], state.batons[0].params.device
        root = self.root if device.type == "cpu" else self.root.on(device)
        client = ClientData(NOBODY, root, torch.from_numpy(rows))
        workspaces = Workspaces(self.task, computing=Computing(device))
        for hop in range(hops):
            visit = Visit(client, self.task, {}, state.shared, state.round + 1, hop, self.seed, workspaces)
            baton = self.local(baton, visit)[0]
        return baton.params - state.batons[0].params


def trusted(steps: Sequence[Vector], own: Vector) -> list[float]:
    """What every change is multiplied by, so that the sum is the merged change: ReLU(cos(g_i, g_0)) · |g_0| / |g_i|
    over the sum of all ReLU(cos)."""
    length = float(torch.linalg.vector_norm(own))
    lengths = [float(torch.linalg.vector_norm(step)) for step in steps]
    scores = [
        max(float(step @ own) / (far * length), 0.0) if far and length else 0.0
        for step, far in zip(steps, lengths, strict=True)
    ]
    total = sum(scores)
    return [score / total * length / far if score else 0.0 for score, far in zip(scores, lengths, strict=True)]
