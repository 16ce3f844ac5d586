"""A threat: who attacks in a run, when, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch

from fedrelay import seeds
from fedrelay.data.examples import Store
from fedrelay.errors import BadInput, within
from fedrelay.merges.colluding import COLLUSIONS, Collusion, colluding
from fedrelay.plans.attackers import Attackers, Spread, hit
from fedrelay.runs.log import Hit
from fedrelay.system.devices import deterministic
from fedrelay.tasks import EVALUATION_BATCH, PerClient, Predictor, Task, Workspaces
from fedrelay.types import Algorithm, Chain, Hop, Merge, Outcome, Tree, Work
from fedrelay.visits.attacks import AT_CLIENTS, Attack, Attacked

ATTACKS: dict[str, type[Attack] | type[Collusion]] = {**AT_CLIENTS, **COLLUSIONS}
"""All attacks by name: those at clients, and those between chains."""


@dataclass(frozen=True)
class When:
    """Who attacks, and in which rounds.

    Args:
        who: who attacks.
        first_round: the first round in which they do.
        last_round: the last one; to the end, unless it is said.
    """

    who: Attackers = Spread()
    first_round: int = 1
    last_round: int | None = None

    def __post_init__(self) -> None:
        within("first_round", self.first_round, least=1)
        if self.last_round is not None:
            within("last_round", self.last_round, least=self.first_round)

    def active(self, round: int) -> bool:
        """Whether they attack in this round."""
        return self.first_round <= round and (self.last_round is None or round <= self.last_round)


@dataclass(frozen=True)
class Threat:
    """What attackers do, who they are and when they do it."""

    how: Attack | Collusion
    when: When = When()

    def __post_init__(self) -> None:
        if not isinstance(self.how, Attack | Collusion):
            raise BadInput(f"a threat takes an attack, such as SignFlip(), not {self.how!r:.80}")

    def fitted(self, task: Task) -> Threat:
        """The same threat for this task; one that cannot be attacked so is refused."""
        return replace(self, how=self.how.fitted(task)) if isinstance(self.how, Attack) else self

    def attackers(self, memo: Tree, clients: int, seed: int) -> tuple[int, ...]:
        """The clients that attack in the whole run, drawn among the groups that the plan begins with."""
        self.when.who.check(clients)
        groups = memo.get("groups") or tuple((client,) for client in range(clients))
        return self.when.who.drawn(groups, seeds.rng(seed, "attack", "who"))

    def hops(self, chains: Sequence[Chain], attackers: Sequence[int], round: int, seed: int) -> dict[Hop, int]:
        """The attackers of this round, each with the number of its chain."""
        if not self.when.active(round):
            return {}
        who = self.when.who
        places = who.hops(chains, attackers, seeds.rng(seed, "attack", "where", round))
        found = hit(chains, places)
        if not attackers and not found and round == self.when.first_round:
            longest = max((len(chain.clients) for chain in chains), default=0)
            raise BadInput(f"{who} finds nobody in round {round}: the longest of its chains has {longest} clients")
        return found

    def work(self, update: Work, hops: Mapping[Hop, int], chains: int) -> Work:
        """The work of a round in which these hops attack."""
        if not hops:
            return update
        attack = self.how if isinstance(self.how, Attack) else Attack(0.0)  # between chains: they train as all do
        return Attacked(update, attack, frozenset(hops), chains, self.when.who.colluding)

    def merge(self, merge: Merge) -> Merge:
        """The merge, with what chains agree on before it."""
        return colluding(merge, self.how) if isinstance(self.how, Collusion) else merge

    def watched(self, test: Store | None) -> Mapping[str, Store]:
        """What tells whether the attack works: by the name of a figure, the examples whose accuracy it is."""
        return self.how.watched(test) if isinstance(self.how, Attack) and test else {}

    def figures(self, predictor: Predictor, test: Store, workspaces: Workspaces) -> dict[str, float]:
        """What tells whether the attack works, on these examples."""
        return {name: accuracy(predictor, some, workspaces) for name, some in self.watched(test).items()}


def threatened(algorithm: Algorithm, how: Attack | Collusion, when: When = When()) -> Algorithm:
    """The same method among attackers."""
    return replace(algorithm, threat=Threat(how, when))


def accuracy(predictor: Predictor, examples: Store, workspaces: Workspaces) -> float:
    """The share of these examples that are told right; where clients have models of their own, the mean over them."""
    if isinstance(predictor, PerClient) and predictor.own and predictor.tested != "common":
        return fmean(right(predictor.for_client(client), examples, workspaces) for client in predictor.some)
    return right(predictor, examples, workspaces)


@torch.no_grad()
def right(predictor: Predictor, examples: Store, workspaces: Workspaces) -> float:
    """The share of these examples whose class has the highest score."""
    outputs, answer = predictor.outputs(workspaces), workspaces.task.loss.answer
    some = examples.on(workspaces.device).batches(EVALUATION_BATCH)
    with deterministic(workspaces.device):
        hits = sum(int((answer(outputs(x), y).argmax(-1) == y).sum()) for x, y in some)
    return hits / len(examples)


def hits_of(hops: Mapping[Hop, int], outcomes: Sequence[Outcome]) -> tuple[Hit, ...]:
    """The attacks of a round that were not lost on the way."""
    lost = {(drop.client, drop.hop) for outcome in outcomes for drop in outcome.dropped}
    return tuple(Hit(client, chain, hop) for (client, hop), chain in hops.items() if (client, hop) not in lost)


def told(threat: Threat, attackers: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
    """Who attacks, for the file beside the run."""
    known = {"names": [names[client] for client in attackers]} if names and attackers else {}
    always = {"clients": list(attackers), **known} if attackers else {"clients": [], "where": str(threat.when.who)}
    return {"attack": str(threat.how), **always}
