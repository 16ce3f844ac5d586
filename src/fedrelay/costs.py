"""What a round costs: messages and bytes between server and clients, and hops that cannot happen at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from fedrelay.types import Outcome, Tree, Vector

DIRECTIONS = ("server_to_client", "client_to_server", "client_to_client")


@dataclass(frozen=True)
class Traffic:
    """Messages and bytes of a round by direction (FedSeq journal 2024, Table 3)."""

    messages: tuple[int, int, int] = (0, 0, 0)
    bytes: tuple[int, int, int] = (0, 0, 0)

    def log(self) -> dict[str, dict[str, int]]:
        return {
            "messages": dict(zip(DIRECTIONS, self.messages, strict=True)),
            "bytes": dict(zip(DIRECTIONS, self.bytes, strict=True)),
        }


def traffic(outcomes: Iterable[Outcome], model: Vector, shared: Tree) -> Traffic:
    """Count what these chains sent.

    The server sends the baton to the first client of a chain, every client to the next one, the last good one back.
    A client that was dropped still cost the message that reached it; whoever held the last good baton sends again.
    Every client also gets `shared` from the server and sends it its uplink.
    """
    down = up = across = extra_down = extra_up = 0
    for outcome in outcomes:
        lost = {drop.hop for drop in outcome.dropped}
        holder: int | None = None  # None is the server
        for hop, client in enumerate(outcome.chain.clients):
            down += holder is None
            across += holder not in (None, client)
            holder = holder if hop in lost else client
        up += holder is not None
        extra_down += len(outcome.chain.clients) * size_of(shared)
        extra_up += sum(size_of(report.uplink) for report in outcome.reports)
    baton = size_of(model)
    return Traffic((down, up, across), (down * baton + extra_down, up * baton + extra_up, across * baton))


def depth(outcomes: Sequence[Outcome]) -> int:
    """The longest chain: hops that had to happen one after another."""
    return max((len(outcome.chain.clients) for outcome in outcomes), default=0)


def size_of(tree: object) -> int:
    """Bytes of the tensors and numbers in a tree."""
    if isinstance(tree, torch.Tensor):
        return tree.numel() * tree.element_size()
    if isinstance(tree, dict):
        return sum(size_of(value) for value in tree.values())
    if isinstance(tree, tuple | list):
        return sum(size_of(value) for value in tree)
    return 8 if isinstance(tree, int | float) else 0
