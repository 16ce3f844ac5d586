"""What methods without a server have in common: everybody keeps its model and mixes it with its neighbours'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fedrelay import seeds
from fedrelay.algorithms.change import Change
from fedrelay.errors import BadInput
from fedrelay.merges import Mixing
from fedrelay.plans import Peers
from fedrelay.tasks import OneModel, PerClient
from fedrelay.types import Baton, Result, State, Visit, Work
from fedrelay.vectors import blend
from fedrelay.visits.around import Around

Which: TypeAlias = Literal["mean", "each"] | int
"""What is tested: the mean of the models, every model (and the mean of the figures), or that of one client."""
Making: TypeAlias = Callable[[Work], Work]
"""What is made of the local training."""


def decentralised(mixing: Mixing, tested: Which, *, visit: Making | None = None, same_start: bool = True) -> Change:
    """No server: everybody trains its own model in every round, and they are mixed like this."""
    if isinstance(tested, bool) or not (tested in ("mean", "each") or isinstance(tested, int)):
        raise BadInput(f"tested must be mean, each, or the number of a client, not {tested!r}")
    predictor = ModelOf(tested) if isinstance(tested, int) else {"mean": None, "each": every_model}[tested]
    plan = Peers(shown=tested) if isinstance(tested, int) else Peers()
    made = visit if same_start else OwnStarts(visit)
    return Change(plan=plan, visit=made, merge=mixing, serverless=True, predictor=predictor, fraction=1.0)


def every_model(state: State) -> PerClient:
    """Everybody's own model; for who is no client, the mean of all."""
    models = [baton.params for baton in state.batons]
    return PerClient(blend(state.batons), dict(enumerate(models)) if state.round else {}, tested="each")


@dataclass(frozen=True)
class ModelOf:
    """The model of one client."""

    client: int

    def __call__(self, state: State, /) -> OneModel:
        return OneModel(state.batons[self.client if state.round else 0].params, f"the model of client {self.client}")


@dataclass(frozen=True)
class OwnStarts:
    """What `visit` makes of the local training, but everybody begins with a random model of its own."""

    visit: Making | None = None

    def __call__(self, local: Work, /) -> OwnStart:
        return OwnStart(local if self.visit is None else self.visit(local))


@dataclass(frozen=True)
class OwnStart(Around):
    """The work, to which everybody comes with a random model of its own in the first round."""

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        return self.work(begun(baton, visit), visit)

    def together(self, batons: Sequence[Baton], visits: Sequence[Visit], /) -> Sequence[Result]:
        return self.work.together([begun(*each) for each in zip(batons, visits, strict=True)], visits)


def begun(baton: Baton, visit: Visit) -> Baton:
    """What a client begins this visit with."""
    if visit.round > 1:
        return baton
    return Baton(visit.task.init(seeds.derive(visit.seed, "own model", visit.client.id)), baton.weight)
