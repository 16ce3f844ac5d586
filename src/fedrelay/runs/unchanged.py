"""Checkpoints that cost what has changed: the rest lies beside them, in files that stay from one to the next.

Beside a checkpoint are client memories, once there are more than `SMALL` bytes of them, and large tensors of a plan's
memo (the sizes and groups of millions of clients, traits, gradients) that were the same in the checkpoint before. A
file beside it is given up when half of it is out of date, or when half as much is to be written anyway: so there are
few of them, and everything is written a few times, however many checkpoints there are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fedrelay.engines.memory import Kept
from fedrelay.runs import checkpoint
from fedrelay.runs.contents import Elsewhere, exchanged
from fedrelay.runs.costs import size_of
from fedrelay.runs.rounds import Noted
from fedrelay.types import State, Tree

SMALL = 1 << 20
"""Fewer bytes are written again every time."""
LARGE = 1 << 10
"""A tensor of fewer bytes is never put aside."""


class Checkpoints:
    """The checkpoints of a run that goes on in this process, one after another. The first one is whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._memories, self._tensors = Beside(folder), Beside(folder)
        self._store: object = None
        self._seen: dict[int, Seen] = {}
        self._next = 0

    def save(self, state: State, memories: Mapping[int, Tree], rounds: Noted | None = None) -> Path:
        """Write what has changed, and then the checkpoint that is made of it and of what was there."""
        memories = self._aside(memories)
        state = self._without_tensors(state)
        beside = checkpoint.Beside(self._memories.names, self._tensors.names)
        return checkpoint.save(self._folder, state, memories, rounds, beside)

    def _aside(self, memories: Mapping[int, Tree]) -> Mapping[int, Tree]:
        """Put memories beside the checkpoint, and give those that must be in it: none, or all if they are few."""
        if not isinstance(memories, Kept) or memories.store is not self._store:
            self._memories = Beside(self._folder)  # nothing is known of them
        if not isinstance(memories, Kept):
            return memories
        self._store = memories.store
        self._memories.hold(memories.numbers, memories.__getitem__)
        return {} if self._memories.names else memories

    def _without_tensors(self, state: State) -> State:
        """The state without large tensors that were the same in the last checkpoint: they lie beside it."""
        before, self._seen = self._seen, {}
        there = {id(one.tensor): one for one in before.values()}

        def noted(part: Any) -> Any:
            if isinstance(part, torch.Tensor) and part.nbytes >= LARGE:
                one = there.get(id(part))
                if one is None or one.version != part._version:
                    self._next += 1
                    one = Seen(self._next, part, part._version)
                self._seen[one.number] = one
            return part

        parts = {"memo": state.memo, "told": state.told}
        exchanged(parts, noted)
        again = {number: one for number, one in self._seen.items() if number in before}
        self._tensors.hold(dict.fromkeys(again, 0), lambda number: again[number].tensor)
        if not self._tensors.names:
            return state
        numbers = {id(one.tensor): number for number, one in again.items()}
        changed = exchanged(parts, lambda part: Elsewhere(numbers[id(part)]) if id(part) in numbers else part)
        return replace(state, **changed)


@dataclass(frozen=True)
class Seen:
    """A tensor of the last checkpoint. What is written into it changes its version."""

    number: int
    tensor: torch.Tensor
    version: int


@dataclass
class File:
    """A file beside checkpoints: how many bytes it has of what, and of which version of each."""

    name: str
    things: dict[int, tuple[Hashable, int]]
    """As they were written."""
    live: dict[int, int]
    """The bytes of those that are still so."""

    @property
    def written(self) -> int:
        return sum(size for _, size in self.things.values())


class Beside:
    """What lies beside checkpoints, by number (of a client, or of a tensor)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[File] = []
        self._sizes: dict[int, tuple[Hashable, int]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The files, the newest last: what it has is in place of what others have."""
        return tuple(file.name for file in self._files)

    def hold(self, versions: Mapping[int, Hashable], content: Callable[[int], Any]) -> None:
        """Have these things in files, in these versions; if they are few, in none."""
        known = self._sizes
        changed = {number for number, version in versions.items() if known.get(number, (None, 0))[0] != version}
        self._sizes = {
            number: (version, size_of(content(number))) if number in changed else known[number]
            for number, version in versions.items()
        }
        if sum(size for _, size in self._sizes.values()) <= SMALL:
            self._files = []
            return
        there: set[int] = set()
        for file in reversed(self._files):  # what a newer one has written counts, whatever it was
            good = [number for number, one in file.things.items() if self._sizes.get(number) == one]
            file.live = {number: file.things[number][1] for number in good if number not in there}
            there |= file.things.keys()
        present = {number for file in self._files for number in file.live}
        self._write([number for number in versions if number not in present], content)

    def _write(self, missing: list[int], content: Callable[[int], Any]) -> None:
        """Write what is missing, and with it what is left of files that are small beside it or half out of date."""
        if not missing:
            return
        kept: list[File] = []
        total = sum(self._sizes[number][1] for number in missing)
        for file in reversed(self._files):  # the small ones are the last
            left = sum(file.live.values())
            if left <= max(2 * total, file.written // 2):
                missing, total = missing + list(file.live), total + left
            else:
                kept.insert(0, file)
        things = {number: self._sizes[number] for number in missing}
        name = checkpoint.save_part(self._folder, Fetched(missing, content))
        self._files = [*kept, File(name, things, {})]


class Fetched(Mapping[int, Any]):
    """Things that are looked up one after another: all at once may be more than memory holds."""

    def __init__(self, numbers: list[int], content: Callable[[int], Any]) -> None:
        self._numbers, self._content = numbers, content

    def __getitem__(self, number: int) -> Any:
        return self._content(number)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)
