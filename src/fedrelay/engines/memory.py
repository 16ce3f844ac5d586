"""What clients keep between visits. Nothing of a round counts until the round has ended well."""

from __future__ import annotations

from collections.abc import Mapping

from fedrelay.types import Tree


class Memory:
    """Client memories with a staging area: `commit` keeps what a round staged, `discard` forgets it."""

    def __init__(self) -> None:
        self.round = 0  # the last committed one
        self._kept: dict[int, Tree] = {}
        self._staged: dict[int, Tree] = {}

    def get(self, client: int) -> Tree:
        """The newest memory of a client; empty if it never kept anything."""
        staged = self._staged.get(client)
        return staged if staged is not None else self._kept.get(client, {})

    def stage(self, client: int, memory: Tree) -> None:
        if memory is not self.get(client):
            self._staged[client] = memory

    def commit(self, round: int) -> None:
        self._kept.update(self._staged)
        self._staged.clear()
        self.round = round

    def discard(self) -> None:
        self._staged.clear()

    def all(self) -> Mapping[int, Tree]:
        return dict(self._kept)

    def restore(self, memories: Mapping[int, Tree], round: int) -> None:
        self._kept, self._staged, self.round = dict(memories), {}, round
