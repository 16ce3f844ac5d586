"""What engines that simulate clients have in common: the clients' memories, and where a long round is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedrelay.data.federation import Federation
from fedrelay.engines.memory import Memory
from fedrelay.types import Engine, Tree, Underway


class Simulating(Engine):
    """An engine with the data and the memories of all clients at hand; how it runs chains is what it must say."""

    federation: Federation
    _memory: Memory
    _underway: Underway | None = None

    def keep_in(self, underway: Underway, /) -> None:
        self._underway = underway

    @property
    def names(self) -> Sequence[str]:
        return self.federation.names

    def commit(self, round: int, /) -> None:
        self._memory.commit(round)

    def back_to(self, round: int, /) -> None:
        self._memory.back_to(round)

    def memories(self) -> tuple[int, Mapping[int, Tree]]:
        return self._memory.round, self._memory.all()

    def remember(self, round: int, memories: Mapping[int, Tree], /) -> None:
        self._memory.restore(memories, round)
