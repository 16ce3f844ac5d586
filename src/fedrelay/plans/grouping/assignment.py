"""Clients to clusters of one size at the least cost: a transportation problem, solved exactly as a minimum-cost flow.

Where there are many clusters, the solver is not shown all of them: a client ends in one of the few that are near. From
the prices of the clusters it is seen afterwards whether anybody would have been better off elsewhere; those places are
added, and it is solved again, until nobody would. The result is as cheap as if all had been shown (column generation).
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedrelay.plans.grouping.distances import Floats

Labels = NDArray[np.int64]
RESOLUTION = 2**30
"""Costs are whole numbers for the solver: this many steps between the smallest and the largest one."""
SHOWN = 24
"""How many columns the solver is shown for each row, to begin with; with up to four times as many, all of them."""
ADDED = 8
"""How many more, for a row that would be better off elsewhere; twice as many every time."""
BLOCK = 2**20
"""How many costs are looked at at a time."""


class Costs(Protocol):
    """A matrix of which only some rows are needed at a time: an array, or numbers that are computed when asked for."""

    @property
    def shape(self) -> tuple[Any, ...]: ...
    def __getitem__(self, rows: slice, /) -> Floats: ...


class Arcs:
    """Pairs of a row and a column, with what they cost in whole numbers."""

    def __init__(self, rows: Labels, columns: Labels, costs: Labels) -> None:
        self.rows, self.columns, self.costs = rows, columns, costs

    def __len__(self) -> int:
        return len(self.rows)

    def __add__(self, other: Arcs) -> Arcs:
        parts = ((self.rows, other.rows), (self.columns, other.columns), (self.costs, other.costs))
        return Arcs(*(np.concatenate(part) for part in parts))


def assign(costs: Costs, size: int, prices: Floats | None = None) -> tuple[Labels, Floats]:
    """The cheapest assignment of every row to a column, with `size` rows to each column; and the columns' prices.

    `prices` of a like problem help to guess which columns a row may go to: they make it faster, not different.
    """
    rows, columns = costs.shape
    whole = Whole(costs)
    if columns <= 4 * SHOWN:
        places = np.repeat(np.arange(rows), columns), np.tile(np.arange(columns), rows)
        return solved(Arcs(*places, whole[slice(rows)].ravel()), size, columns)[0], np.zeros(columns)
    if prices is None:  # what a column costs on average: a first guess at how dear it must be to be wanted by as many
        prices = costs[slice(max(BLOCK // columns, 1))].mean(axis=0)
    arcs, added = whole.nearest(prices, size), ADDED
    while True:
        labels, paid = solved(arcs, size, columns)
        found = fair_prices(arcs, labels, paid, columns)
        better = whole.cheaper(labels, paid, found, added)
        if not len(better):
            return labels, found / whole.scale
        arcs, added = arcs + better, 2 * added


class Whole:
    """Costs above the cheapest of each row, as whole numbers."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.rows, self.columns = costs.shape
        step = max(BLOCK // self.columns, 1)
        self.blocks = [slice(start, min(start + step, self.rows)) for start in range(0, self.rows, step)]
        self.least, highest = np.empty(self.rows), 0.0
        for part in self.blocks:
            block = costs[part]
            self.least[part] = block.min(axis=1)
            highest = max(highest, float((block.max(axis=1) - self.least[part]).max()))
        self.scale = RESOLUTION / (highest or 1.0)

    def __getitem__(self, part: slice) -> Labels:
        return self.rounded(self.costs[part], part)

    def rounded(self, block: Floats, part: slice) -> Labels:
        whole: Labels = np.rint((block - self.least[part, None]) * self.scale).astype(np.int64)
        return whole

    def nearest(self, prices: Floats, size: int) -> Arcs:
        """For every row the columns that seem cheapest at these prices, and one more, so that all can be placed."""
        found = []
        for part in self.blocks:
            block = self.costs[part]
            shown = np.argpartition(block - prices, SHOWN, axis=1)[:, :SHOWN]
            shown = np.column_stack([shown, np.arange(self.rows)[part] // size])
            costs = np.take_along_axis(self.rounded(block, part), shown, axis=1)
            found.append(Arcs(np.repeat(np.arange(self.rows)[part], SHOWN + 1), shown.ravel(), costs.ravel()))
        return joined(found)

    def cheaper(self, labels: Labels, paid: Labels, prices: Floats, most: int) -> Arcs:
        """The columns where a row would be better off at these prices, at most so many for each row."""
        found = []
        most = min(most, self.columns - 1)
        for part in self.blocks:
            block = self[part]
            gain = (paid[part] - prices[labels[part]])[:, None] - (block - prices)
            gaining = np.flatnonzero(gain.max(axis=1) > 0.25)  # prices are halves of whole numbers
            chosen = np.argpartition(-gain[gaining], most, axis=1)[:, :most]
            good = np.take_along_axis(gain[gaining], chosen, axis=1) > 0.25
            rows, columns = np.repeat(gaining, most).reshape(-1, most)[good], chosen[good]
            found.append(Arcs(np.arange(self.rows)[part][rows], columns, block[rows, columns]))
        return joined(found)


def joined(parts: list[Arcs]) -> Arcs:
    return Arcs(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "columns", "costs")))


def solved(arcs: Arcs, size: int, columns: int) -> tuple[Labels, Labels]:
    """The cheapest assignment along these arcs: the column of every row, and what it costs there."""
    rows = size * columns
    from ortools.graph.python.min_cost_flow import SimpleMinCostFlow  # here, because importing it takes its time

    flow = SimpleMinCostFlow()
    tails, heads = arcs.rows.astype(np.int32), (arcs.columns + rows).astype(np.int32)
    numbers = flow.add_arcs_with_capacity_and_unit_cost(tails, heads, np.ones(len(arcs), dtype=np.int64), arcs.costs)
    supplies = np.concatenate([np.ones(rows, dtype=np.int64), np.full(columns, -size, dtype=np.int64)])
    flow.set_nodes_supplies(np.arange(rows + columns, dtype=np.int32), supplies)
    status = flow.solve()
    if status != flow.OPTIMAL:
        raise RuntimeError(
            f"the solver of the minimum-cost flow ended with {status} for {rows} rows, {columns} columns"
        )
    used = np.flatnonzero(flow.flows(numbers))
    labels, paid = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
    labels[arcs.rows[used]], paid[arcs.rows[used]] = arcs.columns[used], arcs.costs[used]
    return labels, paid


def fair_prices(arcs: Arcs, labels: Labels, paid: Labels, columns: int) -> Floats:
    """Prices of the columns at which no row would rather go along another of its arcs.

    There are many such prices; these are half-way between the highest and the lowest ones, which suit rows best that
    could also go where no arc leads yet.
    """
    here, more = labels[arcs.rows], arcs.costs - paid[arcs.rows]
    prices: Floats = (distances(here, arcs.columns, more, columns) - distances(arcs.columns, here, more, columns)) / 2
    return prices


def distances(tails: Labels, heads: Labels, lengths: Labels, nodes: int) -> Labels:
    """The shortest way to every node, from wherever that is (Bellman and Ford); no cycle is shorter than 0."""
    order = np.argsort(heads, kind="stable")
    tails, heads, lengths = tails[order], heads[order], lengths[order]
    starts = np.flatnonzero(np.diff(heads, prepend=-1))
    ends = heads[starts]
    found = np.zeros(nodes, dtype=np.int64)
    while True:
        shorter = np.minimum(np.minimum.reduceat(found[tails] + lengths, starts), found[ends])
        if np.array_equal(shorter, found[ends]):
            return found
        found[ends] = shorter
