"""What methods without a server have in common: everybody keeps its model and mixes it with its neighbours'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from fedrelay.algorithms.change import Change
from fedrelay.errors import BadInput
from fedrelay.merges import Mixing
from fedrelay.plans import Peers
from fedrelay.tasks import OneModel, PerClient
from fedrelay.types import State
from fedrelay.vectors import blend

Which: TypeAlias = Literal["mean", "each"] | int
"""What is tested: the mean of the models, every model (and the mean of the figures), or that of one client."""


def decentralised(mixing: Mixing, tested: Which) -> Change:
    """No server: everybody trains its own model in every round, and they are mixed like this."""
    if isinstance(tested, bool) or not (tested in ("mean", "each") or isinstance(tested, int)):
        raise BadInput(f"tested must be mean, each, or the number of a client, not {tested!r}")
    predictor = ModelOf(tested) if isinstance(tested, int) else {"mean": None, "each": every_model}[tested]
    plan = Peers(shown=tested) if isinstance(tested, int) else Peers()
    return Change(plan=plan, merge=mixing, serverless=True, predictor=predictor, fraction=1.0)


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
