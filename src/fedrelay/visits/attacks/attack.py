"""What an attacker does in a visit: it learns from other examples, or sends another model than it has trained."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedrelay import seeds
from fedrelay.data.examples import Store
from fedrelay.data.federation import ClientData
from fedrelay.errors import within
from fedrelay.tasks import Task
from fedrelay.types import ATTACKED, Baton, Hop, Result, Tree, Vector, Visit, Work
from fedrelay.visits.around import Around

SPIED = "spied"
"""In the memory of an attacker: what it keeps for itself."""


@dataclass(frozen=True)
class Sending:
    """What an attacker knows when it sends: the weights it received and those it has trained."""

    received: Vector
    trained: Vector
    rng: np.random.Generator
    chains: int
    """How many there are in this round."""


@dataclass(frozen=True)
class Attack(ABC):
    """What an attacker does in a visit. A frozen, picklable dataclass; write only what it needs.

    Args:
        strength: how much of it: 0 is the honest client, to the bit, and 1 all of it.
    """

    strength: float = 1.0

    def __post_init__(self) -> None:
        within("strength", self.strength, least=0, most=1)

    def fitted(self, task: Task, /) -> Attack:
        """The same attack for this task, or a refusal of a task that cannot be attacked so."""
        return self

    def check(self, work: Work, /) -> None:
        """Refuse what honest clients do, if it cannot be attacked so."""

    def poisoned(self, client: ClientData, rng: np.random.Generator, /) -> ClientData:
        """The client's examples as it learns from them; the generator is the same one at each of its visits."""
        return client

    def sent(self, sending: Sending, /) -> Vector:
        """The weights that it sends at full strength."""
        return sending.trained

    def spied(self, baton: Baton, visit: Visit, known: Tree, work: Work, /) -> Tree:
        """What it finds out from the model that it received and keeps for itself, with what it knew before; `work` is
        what an honest client does here. Nothing of it is sent."""
        return known

    def watched(self, test: Store, /) -> Mapping[str, Store]:
        """What tells whether it works: by the name of a figure, the examples whose accuracy it is."""
        return {}


@dataclass(frozen=True)
class Attacked(Around):
    """The work of a round in which these hops attack; all others do it as they would.

    What a method keeps at a client or sends besides the model is as the attacker has trained it: only the model lies.
    """

    attack: Attack
    hops: frozenset[Hop]
    chains: int = 1
    colluding: bool = False
    """Whether all attackers draw the same numbers."""

    def __post_init__(self) -> None:
        self.attack.check(self.work)

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        return self.left(baton, visit, self.work(baton, self.arrived(visit)))

    def together(self, batons: Sequence[Baton], visits: Sequence[Visit], /) -> list[Result]:
        after = self.work.together(batons, [self.arrived(visit) for visit in visits])
        return [self.left(*each) for each in zip(batons, visits, after, strict=True)]

    def hits(self, visit: Visit) -> bool:
        """Whether this visit is an attacker's."""
        return (visit.client.id, visit.hop) in self.hops

    def arrived(self, visit: Visit) -> Visit:
        """The visit with the examples that its client learns from."""
        visit = replace(visit, memory=without(visit.memory)) if SPIED in visit.memory else visit
        if not self.hits(visit) or not self.attack.strength:
            return visit
        rng = seeds.rng(visit.seed, "attack", "examples", self.who(visit))
        return replace(visit, client=self.attack.poisoned(visit.client, rng))

    def left(self, baton: Baton, visit: Visit, result: Result) -> Result:
        """What leaves the client: an attacker's report says that it is one, for the record."""
        after, memory, report = result
        known: Tree = visit.memory.get(SPIED, {})
        if not self.hits(visit):
            return (after, {**memory, SPIED: known}, report) if known else result
        report = replace(report, metrics={**report.metrics, ATTACKED: 1.0})
        if self.attack.strength:
            known = self.attack.spied(baton, visit, known, self.work)
            after = replace(after, params=self.lie(baton.params, after.params, visit))
        return after, {**memory, SPIED: known} if known else memory, report

    def lie(self, received: Vector, trained: Vector, visit: Visit) -> Vector:
        """The model that is sent: only weights are changed, and none that stays at home."""
        rng = seeds.rng(visit.seed, "attack", "sent", self.who(visit), visit.round, visit.hop * (not self.colluding))
        own = visit.weights(trained)
        bad = self.attack.sent(Sending(visit.weights(received), own, rng, self.chains))
        if bad is own:
            return trained
        params = trained.clone()
        params[: len(own)] = torch.lerp(own, bad, self.attack.strength)
        for place in self.at_home(visit.task):
            params[place] = trained[place]
        return params

    def who(self, visit: Visit) -> str | int:
        """Whose random numbers are drawn."""
        return "together" if self.colluding else visit.client.id


def without(memory: Tree) -> Tree:
    """The memory as an honest client would have it."""
    return {key: value for key, value in memory.items() if key != SPIED}
