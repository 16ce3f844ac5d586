"""What methods of one pass over the clients send: formulas, apart from any run (FedELMY 2024, Fig. 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fedrelay.errors import within

Count = Callable[[int], int]
"""From the number of clients to a number of messages, each of the size of a model."""


def none(clients: int) -> int:
    return 0


@dataclass(frozen=True)
class Pass:
    """Models that are sent by direction, among so many clients, and in words."""

    words: str
    formula: str
    down: Count = none
    up: Count = none
    across: Count = none
    figure: Count = none
    """Those that the paper counts: neither the first model, which everybody may draw from the seed, nor the result,
    which stays where it is."""
    besides: str = ""
    """What else is sent, in words."""

    def total(self, clients: int) -> int:
        """All that a run counts."""
        within("clients", clients, least=2)
        return self.down(clients) + self.up(clients) + self.across(clients)

    def megabytes(self, clients: int, model: float) -> float:
        """What the paper counts, of a model of so many bytes."""
        within("clients", clients, least=2)
        return self.figure(clients) * model / 1e6


CHAIN = Pass(
    "one chain through everybody, without a server",
    "N − 1",
    across=lambda clients: clients - 1,
    figure=lambda clients: clients - 1,
)
STAR = Pass(
    "everybody to the server",
    "N",
    down=lambda clients: clients,
    up=lambda clients: clients,
    figure=lambda clients: clients,
)
MESH = Pass(
    "everybody to everybody, without a server",
    "N (N − 1)",
    across=lambda clients: clients * (clients - 1),
    figure=lambda clients: clients * (clients - 1),
)
RING = Pass(
    "one chain, then the last model once more round the ring",
    "2 N − 1",
    across=lambda clients: 2 * clients - 1,
    figure=lambda clients: 2 * clients - 1,
)
PASSES: dict[str, Pass] = {
    "fedavg": STAR,
    "dfedavgm": MESH,
    "dfedsam": MESH,
    "fedov": STAR,
    "dense": STAR,
    "maecho": replace(STAR, besides=" and projections"),
    "metafed": RING,
    "sequential": CHAIN,
    "fedelmy": CHAIN,
}
"""How models travel in one pass of these methods, with everybody connected where there is no server."""


def few_shot(clients: int, shots: int) -> int:
    """Messages of a chain that goes through everybody `shots` times: T N − 1 (FedELMY 2024, Alg. 2)."""
    within("shots", shots, least=1)
    return shots * clients - 1


def over_graph(neighbours: int, clients: int, *, steps: int = 1) -> int:
    """Messages where every client sends its model to so many others, in every step of mixing: Q times the sum of
    degrees."""
    return clients * neighbours * steps
