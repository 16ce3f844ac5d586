"""What engines that simulate clients have in common: the clients' memories, and where a long round is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedrelay.data.federation import Federation
from fedrelay.data.stores.on_device import bytes_missing, bytes_there, fits
from fedrelay.engines import room
from fedrelay.engines.memory import Memory
from fedrelay.engines.relay import LOG
from fedrelay.kernels.workspace import Computing
from fedrelay.system.devices import free
from fedrelay.types import Chain, Engine, Tree, Underway, Work


class Simulating(Engine):
    """An engine with the data and the memories of all clients at hand; how it runs chains is what it must say."""

    federation: Federation
    _memory: Memory
    _underway: Underway | None = None
    _free: int | None = None
    """Bytes that the device had when the engine was made, until the run is known to fit; None: nobody need look."""
    _examples: int = 0
    """Bytes of examples that it did not have then, and will."""

    def settle(self, computing: Computing, memory_limit: float | None, *, workers: bool = False) -> None:
        """Compute there from now on; with `workers`, by processes that lay the examples there themselves."""
        self.device, self._limit = computing.device, memory_limit
        self._memory = Memory(memory_limit, self.device)
        if self.device.type == "cpu":
            return
        self._free, source = free(self.device), self.federation.source
        if fits(source.train, self.device):
            stores = source.train, source.test, source.public
            self._examples = sum(bytes_there(s) if workers else bytes_missing(s, self.device) for s in stores)
        else:
            LOG.warning("the examples stay in main memory, and batches are sent: they are too many for %s", self.device)

    def check_room(self, work: Work, chains: Sequence[Chain], round: int, *, rows: int = 1) -> None:
        """Refuse a run that does not fit on its device, before anybody trains; that is looked at once."""
        if round:
            self.need_room(work, chains, rows=rows)
            self.has_room()

    def need_room(self, work: Work, chains: Sequence[Chain], *, rows: int = 1, copies: int = 1) -> None:
        """Refuse such a round if it does not fit on the device, with so many copies of the examples."""
        if self._free is None:
            return
        examples = copies * self._examples
        wanted = room.Wanted(
            self.federation, self.task, work, len(chains), rows, memory_limit=self._limit, examples=examples
        )
        room.check(wanted, self.device, self._free)

    def has_room(self) -> None:
        """The run is known to fit: what is free later, when some of it is there, is not looked at."""
        self._free = None

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
