"""The batches of a visit, or of several visits at once: then every row is one visit's, as it would be alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.data.examples import Store
from fedrelay.data.federation import ClientData
from fedrelay.data.nests import Nest, mapped, rows_in, split
from fedrelay.tasks import PADDING

Batch: TypeAlias = tuple[Nest, Nest, torch.Tensor | int]
"""Inputs, targets, and how many examples they are (for several visits: of each)."""


@dataclass(frozen=True)
class Row:
    """One visit: its client, the positions of its examples, pass by pass, in batches of at most `batch`, and the
    generator that its data is augmented from."""

    client: ClientData
    passes: Iterator[torch.Tensor]
    batch: int
    draw: np.random.Generator
    steps: int
    fold: bool = False
    """Whether a last batch of one example goes with the batch before it."""

    def positions(self) -> Iterator[torch.Tensor]:
        """Batch by batch; the passes are used up with them."""
        for order in self.passes:
            yield from folded(order, self.batch, fold=self.fold)


def folded(rows: Nest, size: int, *, fold: bool) -> Iterable[Nest]:
    """Batches of this size; the last one is what is left, which, folded, is never a single one beside others."""
    parts, count = split(rows, size), rows_in(rows)
    if not (fold and 1 < size < count and count % size == 1):
        return parts
    return [*list(parts)[:-2], mapped(rows, itemgetter(slice(count - size - 1, count)))]


CHUNK = 1 << 20
"""About so many bytes of inputs are gathered at once: several small batches cost hardly more than one."""


def alone(row: Row, *, joined: bool = False) -> Iterator[Iterator[Batch]]:
    """The batches of one visit, pass by pass; or, `joined`, as they are gathered, several in one."""
    examples = row.client.examples
    draw = row.draw if examples.draws else None
    several = 1 if draw else max(CHUNK // (examples.numbers * 4 * row.batch), 1)
    for order in row.passes:
        yield in_chunks(row, order, several, draw, joined=joined)


def in_chunks(
    row: Row, order: torch.Tensor, several: int, draw: np.random.Generator | None, *, joined: bool
) -> Iterator[Batch]:
    """The batches of one pass, several of them gathered at once."""
    batch, fold = row.batch, row.fold
    for positions in folded(order, several * batch, fold=fold):
        x, y = row.client.take(positions, draw)
        if joined:
            yield x, y, rows_in(y)
            continue
        for part, targets in zip(folded(x, batch, fold=fold), folded(y, batch, fold=fold), strict=True):
            yield part, targets, rows_in(targets)


def poisson(
    client: ClientData, rate: float, steps: int, in_pass: int, draw: np.random.Generator
) -> Iterator[Iterator[Batch]]:
    """The batches of one visit, so many in a pass: every example is in each with the same probability, whatever else
    is. A batch may be empty."""

    def drawn(count: int) -> Iterator[Batch]:
        for _ in range(count):
            positions = torch.from_numpy(np.flatnonzero(draw.random(client.size) < rate))
            if len(positions):
                x, y = client.take(positions, draw if client.examples.draws else None)
                yield x, y, len(positions)
            else:
                nothing = torch.empty(0, device=client.examples.device)
                yield nothing, nothing, 0

    for done in range(0, steps, in_pass):
        yield drawn(min(in_pass, steps - done))


def side_by_side(rows: Sequence[Row]) -> Iterator[tuple[int, Iterator[Batch]]]:
    """How many rows are still going on, and their next batches; those with most steps must come first."""
    examples = rows[0].client.examples
    deal: Gathered | Taken
    if all(row.client.examples is examples for row in rows) and not examples.draws:
        deal = Gathered(examples, rows)
    else:
        deal = Taken(rows)
    done = 0
    for until in sorted({row.steps for row in rows}):
        going = sum(row.steps >= until for row in rows)
        yield going, (deal.batch(step, going) for step in range(done, until))
        done = until


class Gathered:
    """All rows over the same examples, which are not augmented: one gathering a step."""

    def __init__(self, examples: Store, rows: Sequence[Row]) -> None:
        drawn = [list(row.positions()) for row in rows]
        counts = np.zeros((rows[0].steps, len(rows)), np.int64)
        for number, batches in enumerate(drawn):
            counts[: len(batches), number] = [batch.shape[0] for batch in batches]
        width = int(counts.max())
        index = np.zeros((rows[0].steps, len(rows), width), np.int64)
        filled = np.arange(width) < counts[:, :, None]
        for number, (row, batches) in enumerate(zip(rows, drawn, strict=True)):
            index[:, number][filled[:, number]] = row.client.rows.index_select(0, torch.cat(batches)).numpy()
        self._examples = examples
        self._index, self._filled = (torch.from_numpy(part).to(examples.device) for part in (index, filled))
        self._counts: NDArray[np.int64] = counts

    def batch(self, step: int, going: int) -> Batch:
        counts = self._counts[step, :going]
        width = int(counts.max())
        x, y = self._examples.take(self._index[step, :going, :width].reshape(-1))
        x, y = x.view(going, width, *x.shape[1:]), y.view(going, width)
        if counts.min() < width:
            y = y.masked_fill(~self._filled[step, :going, :width], PADDING)
            return x, y, torch.from_numpy(counts).to(y.device)
        return x, y, width


class Taken:
    """Every row takes its own examples and draws its own augmentation."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = [(row.client, row.positions(), row.draw) for row in rows]

    def batch(self, step: int, going: int) -> Batch:
        parts = [client.take(next(positions), draw) for client, positions, draw in self._rows[:going]]
        counts = [y.shape[0] for _, y in parts]
        width = max(counts)
        x, y = parts[0]
        inputs, targets = x.new_zeros(going, width, *x.shape[1:]), y.new_full((going, width), PADDING)
        for number, (x, y) in enumerate(parts):
            inputs[number, : counts[number]] = x
            targets[number, : counts[number]] = y
        return inputs, targets, torch.tensor(counts, device=targets.device)
