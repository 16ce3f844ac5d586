"""What a round costs: messages and bytes between server and clients, and hops that cannot happen at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import ClassVar, TypeAlias

import torch

from fedrelay.data.federation import Sent
from fedrelay.runs import measures
from fedrelay.runs.log import RoundLog
from fedrelay.tasks import Task
from fedrelay.types import Hearing, Outcome, Tree, Vector, Work

DIRECTIONS = ("server_to_client", "client_to_server", "client_to_client")


@dataclass(frozen=True)
class Traffic:
    """Messages and bytes of a round by direction (FedSeq journal 2024, Table 3)."""

    messages: tuple[int, int, int] = (0, 0, 0)
    bytes: tuple[int, int, int] = (0, 0, 0)
    relayed: tuple[int, int] = (0, 0)
    """Messages and bytes among those to and from the server that only passed it on their way between clients."""
    describing: tuple[int, int] = (0, 0)
    """Messages and bytes among them that told the server about the clients' data, before the first round."""

    def __add__(self, other: Traffic) -> Traffic:
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        return Traffic(*(tuple(map(add, one, another)) for one, another in both))

    def by_name(self) -> dict[str, dict[str, int]]:
        """As the log of a round has it."""
        return {
            "messages": dict(zip(DIRECTIONS, self.messages, strict=True)),
            "bytes": dict(zip(DIRECTIONS, self.bytes, strict=True)),
            "relayed": dict(zip(("messages", "bytes"), self.relayed, strict=True)),
            "describing": dict(zip(("messages", "bytes"), self.describing, strict=True)),
        }


Home: TypeAlias = Mapping[int, int]
"""By the length of a vector (a model's, that of its trainable part): how many of its numbers never leave a client."""
EVERYTHING_LEAVES: Home = {}


def traffic(
    outcomes: Iterable[Outcome],
    model: Vector,
    shared: Tree,
    *,
    relayed: bool = False,
    serverless: bool = False,
    home: Home = EVERYTHING_LEAVES,
) -> Traffic:
    """Count what these chains sent.

    The server sends the baton to the first client of a chain, every client to the next one, the last good one back.
    A client that was dropped still cost the message that reached it; whoever held the last good baton sends again.
    Every client also gets `shared` from the server and sends it its uplink: a vector of the model's size in them is a
    message of its own. If the server relays, what goes from one client to another is two messages, up and down. Without
    a server the first client has the baton, or gets it from the client that has; and the last good one keeps it.
    """
    down = up = across = extra_down = extra_up = more_down = more_up = 0
    each, vectors = size_of(shared, home), vectors_in(shared, model)
    for outcome in outcomes:
        lost = {drop.hop for drop in outcome.dropped}
        holder = outcome.chain.holder if serverless else None  # None is the server
        for hop, client in enumerate(outcome.chain.clients):
            down += holder is None and not serverless
            across += holder not in (None, client)
            holder = holder if hop in lost else client
        up += holder is not None and not serverless
        extra_down += len(outcome.chain.clients) * each
        more_down += len(outcome.chain.clients) * vectors
        for report in outcome.reports:
            if report.uplink:  # mostly there is none
                extra_up += size_of(report.uplink, home)
                more_up += vectors_in(report.uplink, model)
    baton, passed = size_of(model, home), across if relayed else 0
    down, up, across = down + passed, up + passed, across - passed
    sizes = (down * baton + extra_down, up * baton + extra_up, across * baton)
    return Traffic((down + more_down, up + more_up, across), sizes, (2 * passed, 2 * passed * baton))


def exchanged(steps: Iterable[Hearing], model: Vector, home: Home = EVERYTHING_LEAVES) -> Traffic:
    """Count what clients send one another where they mix their models: a message to every neighbour, in every step."""
    messages = sum(len(heard) for hearing in steps for heard in hearing)
    return Traffic((0, 0, messages), (0, 0, messages * size_of(model, home)))


def describing(outcome: Outcome, work: Work, model: Vector, home: Home = EVERYTHING_LEAVES) -> Traffic:
    """What it took to describe a client: the model, if the work reads it, to the client; and what it tells, back."""
    down, up = int(work.reads_model), len(outcome.reports)
    sizes = (down * size_of(model, home), sum(size_of(report.uplink) for report in outcome.reports), 0)
    return Traffic((down, up, 0), sizes, describing=(down + up, sum(sizes)))


def preparing(sent: Sent | None) -> Traffic:
    """What it took to prepare the data by federated statistics: it describes clients too."""
    if sent is None:
        return Traffic()
    return Traffic((*sent.messages, 0), (*sent.bytes, 0), describing=(sum(sent.messages), sum(sent.bytes)))


def vectors_in(tree: object, model: Vector) -> int:
    """How many vectors of the size of a model a tree holds (control variates): each is a message of its own. Anything
    smaller goes with the baton."""
    if isinstance(tree, torch.Tensor):
        return int(2 * tree.numel() > model.numel())
    if isinstance(tree, dict):
        return sum(vectors_in(value, model) for value in tree.values())
    return sum(vectors_in(value, model) for value in tree) if isinstance(tree, tuple | list) else 0


def depth(outcomes: Sequence[Outcome]) -> int:
    """The longest chain: hops that had to happen one after another."""
    return max((len(outcome.chain.clients) for outcome in outcomes), default=0)


@dataclass(frozen=True)
class Estimate:
    """Time and traffic of some rounds by FedGSP's formulas (2022, Eqs. 15-17), for its phone and its network: every
    visit gets the model from the server and sends it back, whoever sent it in this run."""

    per_example: float
    """Operations of a training step on one example."""
    model: int
    """How many numbers a model has."""
    NAMES: ClassVar[tuple[str, ...]] = ("computing_seconds", "communication_seconds", "traffic_bytes")
    """T_comp, T_comm and D_comm."""

    @classmethod
    def of(cls, task: Task, example: torch.Tensor) -> Estimate:
        """For this task; the example says how many operations a step takes."""
        return cls(operations(task, example), task.layout.size)

    def __call__(self, logs: Sequence[RoundLog]) -> dict[str, float]:
        visits, working = sum(log.visits for log in logs), [log for log in logs if log.chains]
        computing = measures.computing_seconds(
            [log.examples / log.chains for log in working],
            [log.chains for log in working],  # in other rounds only the server works
            per_example=self.per_example,
            per_merge=self.model,
        )
        communication = measures.communication_seconds(visits, self.model * 4)
        found = computing, communication, measures.traffic_bytes(visits, self.model * 4)
        return dict(zip(self.NAMES, found, strict=True))


def operations(task: Task, example: torch.Tensor) -> int:
    """Floating-point operations of one training step on one example; backwards costs twice what forwards does."""
    from torch.utils.flop_counter import FlopCounterMode  # here, because few need it and it takes its time to import

    network = task.network().eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(example)
    return 3 * int(counter.get_total_flops())


def size_of(tree: object, home: Home = EVERYTHING_LEAVES) -> int:
    """Bytes of the tensors and numbers in a tree, without those that stay at home."""
    if isinstance(tree, torch.Tensor):
        return (tree.numel() - home.get(tree.numel(), 0)) * tree.element_size()
    if isinstance(tree, dict):
        return sum(size_of(value, home) for value in tree.values())
    if isinstance(tree, tuple | list):
        return sum(size_of(value, home) for value in tree)
    return 8 if isinstance(tree, int | float) else 0
