"""Whole visits as the compiled library makes them, shared by all threads that make some."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch

from fedrelay.kernels.native.sequence import Rule
from fedrelay.types import Vector


class WholeVisit(ctypes.Structure):
    """One of them, as in `dense.h`."""

    _fields_ = (
        ("start", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("rule", ctypes.c_void_p),
        ("many", ctypes.c_int64),
        ("examples", ctypes.c_int64),
        ("done", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("batch", ctypes.c_int32),
        ("total", ctypes.c_float),
        ("stream", ctypes.c_char * 64),
    )


class Way(NamedTuple):
    """What a visit does: it goes through its rows in fresh orders that are drawn from a seed, so many examples in all,
    so many at a time, with a step of this kind each."""

    start: Vector
    rows: torch.Tensor
    seed: int
    examples: int
    batch: int
    rule: Rule


class WholeVisits:
    """Visits to rows of the same examples (`Dense.takes`). `models` are what becomes of the models that they start
    from."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, ways: Sequence[Way], like: Vector) -> None:
        self.x, self._y, self._ways = x, y, ways  # the library reads them where they are
        self.models = [torch.empty_like(like) for _ in ways]
        self.rows, self.batch = max(way.rows.shape[0] for way in ways), max(way.batch for way in ways)
        """The most that a visit has."""
        self.stopped = False
        """Whether threads that make them are to end, at the interpreter's next turn."""
        if like.dtype != torch.float32 or like.device.type != "cpu" or not like.is_contiguous():
            raise RuntimeError(
                f"models of {like.dtype} on {like.device} are not as the library takes them: float32 on the processor"
            )
        given = list[WholeVisit]()
        for model, (start, rows, seed, count, batch, rule) in zip(self.models, ways, strict=True):
            source = None
            if start.dtype == torch.float32 and start.shape == like.shape and start.is_contiguous():
                source = start.data_ptr()
            else:
                model.copy_(start)
            place = source, model.data_ptr(), rows.data_ptr(), ctypes.addressof(rule)
            given.append(WholeVisit(*place, rows.shape[0], count, 0, seed, batch))
        self._visits, self._next = (WholeVisit * len(ways))(*given), ctypes.c_int64(0)
        self.data = x.data_ptr(), y.data_ptr()
        self.where = ctypes.addressof(self._visits), len(ways), ctypes.addressof(self._next)

    def __len__(self) -> int:
        return len(self._ways)

    def stop(self) -> None:
        """Let all threads end soon."""
        self.stopped = True

    @property
    def losses(self) -> list[float]:
        """The sums of the losses of each, as passes add them up."""
        return [visit.total for visit in self._visits]
