"""Examples that lie in a file: only what is in use is in memory."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.data.examples import Store, Transform, as_seen, ready, seen
from fedrelay.data.nests import Nest, form
from fedrelay.errors import BadInput


@dataclass(frozen=True, repr=False)
class StoredExamples(Store):
    """Inputs in an .npy file, stored as `Examples` has them; these rows of it, in this order.

    Other processes are sent the path, and read the file themselves.
    """

    path: Path
    rows: torch.Tensor
    y: torch.Tensor
    transform: Transform | None = None

    def __post_init__(self) -> None:
        if len(self.rows) != len(self.y):
            raise BadInput(f"{len(self.rows)} inputs but {len(self.y)} targets: there must be one target per input")

    @property
    def shape(self) -> tuple[int, ...]:
        return seen(self._sample)

    @property
    def form(self) -> str:
        return form(as_seen(self._sample))

    def take(self, rows: torch.Tensor | slice, rng: np.random.Generator | None = None) -> tuple[Nest, Nest]:
        if isinstance(rows, slice):
            index, y = self.rows[rows], self.y[rows]
        else:
            index, y = self.rows.index_select(0, rows), self.y.index_select(0, rows)
        return ready(self._file.take(index), self.transform, rng), y

    def picked(self, rows: torch.Tensor) -> StoredExamples:
        return replace(self, rows=self.rows[rows], y=self.y[rows])

    @property
    def _sample(self) -> torch.Tensor:
        return self._file.take(self.rows[:1])

    @cached_property
    def _file(self) -> RowsFile:
        return RowsFile(self.path)


class RowsFile:
    """An .npy file whose rows are read when they are asked for.

    Not memory-mapped: systems map up to a megabyte around every place that is looked at, so that 50 rows of 12 kB made
    50 MB resident.
    """

    def __init__(self, path: Path) -> None:
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)  # to have its header read and its size checked
            self._file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except (OSError, ValueError) as error:
            raise BadInput(f"{path}: expected examples that were stored whole, found {error}") from error
        weakref.finalize(self, os.close, self._file)
        self._path, self._start, self._dtype = path, int(array.offset), array.dtype
        self._shape, self._each = array.shape[1:], int(array[:1].nbytes)
        self._turn = Lock()

    def take(self, rows: torch.Tensor) -> torch.Tensor:
        found = np.empty((len(rows), self._each), np.uint8)
        for row, place in zip(rows.tolist(), found, strict=True):
            if self._read(place, self._start + row * self._each) != self._each:
                raise BadInput(f"{self._path}: expected examples that were stored whole, found its end")
        return torch.from_numpy(found.view(self._dtype).reshape(len(rows), *self._shape))

    def _read(self, place: NDArray[np.uint8], start: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file, [place.data], start)
        with self._turn:  # without it, a file has one position for all threads
            os.lseek(self._file, start, os.SEEK_SET)
            content = os.read(self._file, len(place))
        place[: len(content)] = np.frombuffer(content, np.uint8)
        return len(content)


def write_rows(stream: IO[bytes], count: int, chunks: Iterable[NDArray[Any]]) -> None:
    """So many rows as an .npy file, chunk by chunk, so that they are never all in memory."""
    written, kind = 0, None
    for chunk in chunks:
        if kind is None:
            kind = (chunk.dtype, chunk.shape[1:])
            described = {"descr": np.lib.format.dtype_to_descr(chunk.dtype), "fortran_order": False}
            np.lib.format.write_array_header_2_0(stream, described | {"shape": (count, *kind[1])})
        if (chunk.dtype, chunk.shape[1:]) != kind:
            raise BadInput(f"rows must be alike, found {kind[1]} of {kind[0]} and {chunk.shape[1:]} of {chunk.dtype}")
        stream.write(np.ascontiguousarray(chunk).data)
        written += len(chunk)
    if written != count:
        raise BadInput(f"{count} rows were to be stored, found {written}")
