"""Convolutions with fewer multiplications: Winograd's minimal filtering along the width (Lavin & Gray 2016).

The product of two polynomials is known from its values at enough points, and these are products of numbers: so few
multiplications do the work of many. Filtering a line of pixels is the transpose of multiplying polynomials, so r taps
and m outputs need m + r - 1 products, not m * r. The tile and the filter are taken to the points 0, +-a, ... and
infinity, multiplied there (one product of matrices per point and filter line), and taken back. Along the height it is
plain convolution.

The points come in pairs, so the even and the odd pixels of a tile are combined once, and then added and subtracted.
Rounding errors are those of plain convolution to two and a half times as large: below 2e-6 of the result.

It pays: LeNet-5 of the benchmark's workload B trains 1,230 examples a second with it and 1,100 without (12 % more; one
thread on one core, in turn, the quickest of 40 each), 1,098 and 1,019 where all cores are busy (8 %).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch.nn import functional

Tensor = torch.Tensor

PAIRS = (1.0, 2.0, 0.5)
"""The first q of them and their negatives are points, besides 0 and infinity: 2q + 2 in all."""

TRANSFORM = 9
"""To take a number to the points or back costs about so many multiplications, times the points."""

LEAST = 256
"""Products of matrices with fewer lines than this have more to do before and after than in between."""


class Points:
    """How tiles are taken to the points and back: `outputs` from filters of `taps`, at 2 * pairs + 2 points."""

    def __init__(self, taps: int, pairs: int) -> None:
        self.pairs = PAIRS[:pairs]
        self.count = 2 * pairs + 2
        self.outputs = self.count - taps + 1
        squares = [a * a for a in self.pairs]
        self.all = poly(squares)
        """Coefficients of the product of all (z - a^2), the highest last: with z = x^2, what is zero at every pair."""
        self.others = [poly([b for b in squares if b != a]) for a in squares]
        """The same without one pair."""
        points = [0.0, *(sign * a for a in self.pairs for sign in (1, -1))]
        rows = [[p**tap / np.prod([p - q for q in points if q != p]) for tap in range(taps)] for p in points]
        self.filters = torch.tensor([*rows, [0.0] * (taps - 1) + [1.0]], dtype=torch.float32)
        """Takes the taps of a filter line to the points."""

    def tiles(self, width: int) -> int:
        """How many it takes for so many outputs."""
        return -(-width // self.outputs)

    def forth(self, columns: list[Tensor], out: list[Tensor]) -> None:
        """Take tiles, given as their columns, to the points."""
        even, odd = columns[0::2], columns[1::2]
        combine(even, self.all, out[0])
        combine(odd, self.all, out[-1])
        upper, lower = torch.empty_like(out[0]), torch.empty_like(out[0])
        for a, others, plus, minus in zip(self.pairs, self.others, out[1:-1:2], out[2:-1:2], strict=True):
            combine(even[1:], others, upper)
            combine(odd[:-1], others, lower)
            torch.add(upper, lower, alpha=a, out=plus)
            torch.sub(upper, lower, alpha=a, out=minus)

    def forth_backward(self, dout: list[Tensor], dcolumns: list[Tensor]) -> None:
        """Add to the gradients of the columns what those at the points say; uses up the latter."""
        even, odd = dcolumns[0::2], dcolumns[1::2]
        scatter(dout[0], self.all, even)
        scatter(dout[-1], self.all, odd)
        for a, others, plus, minus in zip(self.pairs, self.others, dout[1:-1:2], dout[2:-1:2], strict=True):
            plus_and_minus(plus, minus)
            scatter(plus, others, even[1:])
            scatter(minus, [a * factor for factor in others], odd[:-1])

    def back(self, at: list[Tensor], out: list[Tensor]) -> None:
        """Take products at the points back to the outputs of every tile; uses up the products."""
        for plus, minus in zip(at[1:-1:2], at[2:-1:2], strict=True):
            plus_and_minus(plus, minus)
        for power, column in enumerate(out):
            ends = [at[-1]] if power == len(out) - 1 else []
            ends += [at[0]] if power == 0 else []
            combine([*ends, *at[1 + power % 2 : -1 : 2]], [1.0] * len(ends) + [a**power for a in self.pairs], column)

    def back_backward(self, dout: list[Tensor], dat: list[Tensor]) -> None:
        """The gradients of the products at the points, from those of the outputs."""
        dat[0].copy_(dout[0])
        dat[-1].copy_(dout[-1])
        even, odd = torch.empty_like(dat[0]), torch.empty_like(dat[0])
        for a, plus, minus in zip(self.pairs, dat[1:-1:2], dat[2:-1:2], strict=True):
            powers = [a**power for power in range(0, len(dout), 2)]
            combine(dout[0::2], powers, even)
            combine(dout[1::2], powers[: len(dout) // 2], odd)
            torch.add(even, odd, alpha=a, out=plus)
            torch.sub(even, odd, alpha=a, out=minus)


def plus_and_minus(one: Tensor, other: Tensor) -> None:
    """Their sum and their difference, in their places."""
    one.add_(other)
    torch.sub(one, other, alpha=2, out=other)


def poly(roots: list[float]) -> list[float]:
    """The coefficients of the polynomial with these roots, the highest, which is 1, last."""
    return [float(value) for value in np.atleast_1d(np.poly(roots))[::-1]]


def combine(parts: list[Tensor], factors: list[float], out: Tensor) -> None:
    """The sum of parts by factors; one of these must be 1."""
    first = factors.index(1)
    rest = [number for number in range(len(parts)) if number != first]
    if not rest:
        out.copy_(parts[first])
        return
    torch.add(parts[first], parts[rest[0]], alpha=factors[rest[0]], out=out)
    for number in rest[1:]:
        out.add_(parts[number], alpha=factors[number])


def scatter(part: Tensor, factors: list[float], out: list[Tensor]) -> None:
    """Add a part to several, by factors."""
    for factor, place in zip(factors, out, strict=True):
        place.add_(part, alpha=factor)


@lru_cache(256)
def best_points(filters: tuple[int, ...], batch: int, rows: int, columns: int) -> Points | None:
    """Those that make filters of shape (filters, high, wide, channels) cheapest; None if plain convolution is."""
    count, high, wide, channels = filters
    best, least = None, 0.95 * columns * high * wide * channels * count
    for points in (Points(wide, pairs) for pairs in range(1, len(PAIRS) + 1) if 2 * pairs + 2 > wide > 1):
        tiles = points.tiles(columns)
        each = high * channels * count + TRANSFORM * points.count * (channels + count)
        if tiles * points.count * each < least and batch * rows * tiles >= LEAST:
            best, least = points, tiles * points.count * each
    return best


class Filtering:
    """A convolution of stride 1 over channels-last images; weights and gradient are (filters, high, wide, channels)."""

    def __init__(self, weight: Tensor, gradient: Tensor, padding: tuple[int, int]) -> None:
        self._weight, self._gradient, self._padding = weight, gradient, padding

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor | None:
        """Images (batch, channels, height, width) to filtered ones; None if plain convolution is cheaper for them."""
        filters, high, wide, channels = self._weight.shape
        down, right = self._padding
        batch, _, height, width = self._shape = x.shape
        self._out = rows, columns = height + 2 * down - high + 1, width + 2 * right - wide + 1
        points = best_points(tuple(self._weight.shape), batch, rows, columns)
        if points is None:
            return None
        self._points, tiles = points, points.tiles(columns)
        self._tail = tiles * points.outputs - columns
        x = x.permute(0, 2, 3, 1)
        if down or right or self._tail:
            x = functional.pad(x, (0, 0, right, right + self._tail, down, down))
        self._inside = x.shape
        # Height first: lines of the image are then lines of a matrix, and a window of them is one piece of memory.
        self._at = x.new_empty(points.count, x.shape[1], batch, tiles, channels)
        points.forth(self._columns(x), list(self._at))
        self._filters = torch.matmul(points.filters, self._weight)  # (filters, high, points, channels)
        found = x.new_empty(points.count, rows, batch, tiles, filters)
        for point in range(points.count):
            total = found[point].view(-1, filters)
            for line in range(high):
                lines = self._at[point, line : line + rows].view(-1, channels)
                kernel = self._filters[:, line, point].mT
                torch.mm(lines, kernel, out=total) if line == 0 else total.addmm_(lines, kernel)
        y = x.new_empty(batch, rows, tiles * points.outputs, filters)
        points.back(list(found), self._outputs(y))
        if bias is not None:
            y += bias
        return y[:, :, :columns].permute(0, 3, 1, 2)

    def backward(self, dy: Tensor) -> Tensor:
        """Write the gradient of the filters and return that of the images."""
        filters, high, _, channels = self._weight.shape
        points, (rows, _) = self._points, self._out
        tiles = self._at.shape[3]
        batch, _, height, width = self._shape
        dy = dy.permute(0, 2, 3, 1)
        if self._tail:
            dy = functional.pad(dy, (0, 0, 0, self._tail))
        dat = dy.new_empty(points.count, rows, batch, tiles, filters)
        points.back_backward(self._outputs(dy), list(dat))
        dkernels = dy.new_empty(points.count, high, filters, channels)
        dlines = torch.empty_like(self._at)
        for point in range(points.count):
            dtotal = dat[point].view(-1, filters)
            kernels, dline = self._filters[:, :, point], dlines[point]
            for line in range(high):
                torch.mm(dtotal.mT, self._at[point, line : line + rows].view(-1, channels), out=dkernels[point, line])
            torch.mm(dtotal, kernels[:, 0], out=dline[:rows].view(-1, channels))
            dline[rows:].zero_()
            for line in range(1, high):
                dline[line : line + rows].view(-1, channels).addmm_(dtotal, kernels[:, line])
        lines = torch.mm(points.filters.mT, dkernels.view(points.count, -1)).view(-1, high, filters, channels)
        self._gradient.copy_(lines.permute(2, 1, 0, 3))
        dx = dy.new_zeros(self._inside)
        points.forth_backward(list(dlines), self._columns(dx))
        down, right = self._padding
        return dx[:, down : down + height, right : right + width].permute(0, 3, 1, 2)

    def _columns(self, x: Tensor) -> list[Tensor]:
        """The first, second, ... column of all tiles, (height, batch, tiles, channels) each."""
        step, tiles = self._points.outputs, (self._inside[2] - self._points.count) // self._points.outputs + 1
        return [
            x[:, :, first : first + step * (tiles - 1) + 1 : step].permute(1, 0, 2, 3)
            for first in range(self._points.count)
        ]

    def _outputs(self, y: Tensor) -> list[Tensor]:
        """The first, second, ... output of all tiles, in the same order."""
        step = self._points.outputs
        return [y[:, :, first::step].permute(1, 0, 2, 3) for first in range(step)]
