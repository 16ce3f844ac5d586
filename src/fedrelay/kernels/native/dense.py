"""Training dense layers, and the convolutions or LSTM layers before them, outside the interpreter."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from typing import TypeAlias

import torch

from fedrelay.data.nests import Nest
from fedrelay.kernels.native.library import Found, drawn, found
from fedrelay.kernels.native.sequence import Front, Layer, Rule, Sequence, Stage
from fedrelay.kernels.native.visits import WholeVisits
from fedrelay.types import Vector

Part: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
"""Inputs, targets, and which of them."""
BITS = 1 << 19
"""About so many random words of 64 bits are drawn at once."""
MOST_ROWS = 2**32 - 1
"""What is longer, NumPy draws with more bits."""
TURN = 0.1
"""Seconds after which the interpreter should have its turn."""
KINDS = {"sgd": 0, "adam": 1, "adamw": 2}


def draws_orders(count: int) -> bool:
    """Whether the library draws orders of so many rows as NumPy does."""
    library = found()
    return isinstance(library, Found) and library.draws and count <= MOST_ROWS


def passes(seed: int, rows: torch.Tensor, examples: int) -> Iterator[torch.Tensor] | None:
    """These rows in a fresh order per pass, as NumPy's generator of this seed draws them; the last pass ends with the
    last of so many examples. None where only NumPy can."""
    library = found()
    if isinstance(library, str) or not draws_orders(len(rows)):
        return None
    starts = range(0, examples, len(rows))
    orders = drawn(library.library, seed, rows.contiguous())
    return (order[: examples - start] for start, order in zip(starts, orders))  # noqa: B905


class Dense:
    """Dense layers over these vectors, and the convolutions or LSTM layers before them, which train without the
    interpreter."""

    def __init__(self, sequence: Sequence, weights: Vector, gradient: Vector) -> None:
        library = found()
        assert isinstance(library, Found)
        self._found, self._sequence, self._vectors = library, sequence, (weights, gradient)
        self._layers = (Layer * len(sequence.layers))(*sequence.layers)
        self._front = Front(count=len(sequence.stages), share=sequence.share)
        where = ctypes.addressof(self._front), ctypes.addressof(self._layers), len(self._layers)
        self._where = *where, weights.data_ptr(), gradient.data_ptr(), len(weights)
        self.draws = bool(sequence.share or any(part.share for part in (*sequence.stages, *sequence.layers)))
        """Whether training draws random numbers besides the orders of examples: there is dropout."""
        self._ready_for: tuple[int, ...] = ()
        self._order = torch.empty(2, 0, dtype=torch.int64)

    def descend(
        self,
        x: torch.Tensor,
        y: torch.Tensor,
        batch: int,
        rule: Rule,
        which: torch.Tensor | None = None,
        draw: torch.Generator | None = None,
    ) -> float:
        """Go through these examples in batches, with a step of this kind each; the sum of their losses, each as it was
        before its step. `which` chooses rows of both, which lie as they are stored then (`takes`). Dropout draws from
        `draw`, or else from torch's global generator."""
        if which is None:
            x, y = self._laid(x, y)
        if self._ready_for != (batch, *x.shape[1:3]):
            self._prepare(x, batch)
        if self._words:
            total = sum(self._run(*part, batch, rule) for part in self._parts(x, y, batch, which, draw))
        else:
            total = self._run(x, y, which, batch, rule)
        if math.isnan(total):
            self.check(*((x, y) if which is None else (x[which], y[which])))
        return total

    def visits(self, shared: WholeVisits) -> None:
        """Make whole visits, whichever are not begun yet: others may take theirs at the same time, each with layers of
        its own. The interpreter has its turn, to see Ctrl-C, several times a second or after every pass."""
        if self._ready_for != (shared.batch, *shared.x.shape[1:3]):
            self._prepare(shared.x, shared.batch)
        if self._order.shape[1] < shared.rows:
            self._order = torch.empty(2, shared.rows, dtype=torch.int64)
        front, layers, count, _, gradient, size = self._where
        given = (
            *(self._found.sgemm, front, layers, count, gradient, size, *shared.data),
            *(self._order.data_ptr(), self._order.shape[1], self._scratch.data_ptr()),
        )
        make, at, many = self._found.library.dense_visits, -1, len(shared)
        while at < many and not shared.stopped:
            at = make(*given, *shared.where, at, TURN)

    def _run(self, x: torch.Tensor, y: torch.Tensor, which: torch.Tensor | None, batch: int, rule: Rule) -> float:
        total: float = self._found.library.dense_descend(
            *(self._found.sgemm, *self._where, x.data_ptr(), y.data_ptr()),
            *(None if which is None else which.data_ptr(), len(y) if which is None else len(which), batch),
            *(ctypes.addressof(rule), self._scratch.data_ptr(), None, 0),
        )
        return total

    def _parts(
        self, x: torch.Tensor, y: torch.Tensor, batch: int, which: torch.Tensor | None, draw: torch.Generator | None
    ) -> Iterator[Part]:
        """A few steps at a time, each with its random bits: those that the layers of PyTorch would draw."""
        several = max(BITS // self._words, 1) * batch
        rows = len(y) if which is None else len(which)
        for start in range(0, rows, several):
            some = slice(start, min(start + several, rows))
            whole, rest = divmod(some.stop - start, batch)
            words = whole * self._words + self._sequence.drawn(rest)
            bits = torch.empty(words, dtype=torch.int64).random_(-(2**63), None, generator=draw)
            self._front.bits = bits.data_ptr()
            yield (x[some], y[some], None) if which is None else (x, y, which[some])

    def _prepare(self, x: torch.Tensor, batch: int) -> None:
        """Make room for batches of this size; and images of this size if there are convolutions, sequences of this
        length if tokens are read."""
        self._ready_for = ()  # until it is
        library, front, sequence, reading = self._found.library, self._front, self._sequence, self._sequence.reading
        if sequence.stages:
            sequence.shape(*x.shape[1:3])
            self._stages = (Stage * len(sequence.stages))(*sequence.stages)
            front.stages = ctypes.addressof(self._stages)
            self._images = torch.empty(library.front_scratch(ctypes.addressof(front), batch))
            front.scratch = self._images.data_ptr()
        if reading is not None:
            reading.steps = x.shape[1]
            self._steps = torch.empty(library.reader_scratch(ctypes.addressof(reading), batch))
            reading.scratch, front.reader = self._steps.data_ptr(), ctypes.addressof(reading)
        more = front.count or reading is not None
        self._scratch = torch.empty(library.dense_scratch(*self._where[1:3], more, batch))
        self._words, self._ready_for = sequence.drawn(batch), (batch, *x.shape[1:3])

    def takes(self, x: Nest, y: Nest) -> bool:
        """Whether rows can be taken from these tensors as they lie in memory."""
        if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
            return False
        kind = torch.float32 if self._sequence.reading is None else torch.int64
        if not (x.dtype == kind and y.dtype == torch.int64 and x.is_contiguous() and y.is_contiguous()):
            return False
        if self._sequence.reading is not None:
            return x.ndim == 2 and x.shape[1] > 0 and y.shape == x.shape[:1]
        if self._sequence.stages:
            return x.ndim == 4 and x.shape[3] == self._sequence.stages[0].channels
        return (x.ndim < 4 or x.shape[3] == 1) and x.numel() == y.shape[0] * self._layers[0].inputs

    def _laid(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs as networks take them, row by row in memory; others are refused."""
        if self._sequence.reading is not None:
            if x.ndim != 2 or x.is_floating_point() or not x.shape[1] or y.shape != x.shape[:1]:
                found = f"{tuple(x.shape)} of {x.dtype} with targets {tuple(y.shape)}"
                raise RuntimeError(f"sequences of tokens and a class each are needed, not {found}")
            return x.to(torch.int64).contiguous(), y.to(torch.int64).contiguous()
        stages, inputs, shape = self._sequence.stages, self._layers[0].inputs, tuple(x.shape)
        fits = x.ndim == 4 and shape[1] == stages[0].channels if stages else x.flatten(1).shape[1] == inputs
        if x.dtype != torch.float32 or not fits or y.shape != x.shape[:1]:
            needed = f"images of {stages[0].channels} channels" if stages else f"inputs of {inputs} numbers"
            found = f"{shape} of {x.dtype} with targets {tuple(y.shape)}"
            raise RuntimeError(f"{needed} of float32 and a class each are needed, not {found}")
        x = x.permute(0, 2, 3, 1) if stages else x.flatten(1)
        return x.contiguous(), y.to(torch.int64).contiguous()

    def check(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Refuse targets that are no class, and tokens that are not in the table: their losses are not numbers."""
        reading = self._sequence.reading
        refuse_beyond(y, self._layers[len(self._layers) - 1].outputs, "targets", "classes")
        if reading is not None:
            refuse_beyond(x, reading.tokens, "tokens", "rows in the table")


def refuse_beyond(values: torch.Tensor, count: int, what: str, of: str) -> None:
    """Raise if there are others than whole numbers from 0 that are less than `count`."""
    if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < count:
        raise IndexError(f"{what} from {int(values.min())} to {int(values.max())}, but there are {count} {of}")
