"""Trees as parcels: a short skeleton, and the bytes of all tensors and arrays, to be laid wherever there is room.

So nothing large is pickled: it is copied once into shared memory (or a file) and looked at from the other side.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import sys
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import cloudpickle
import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.engines.shared_folder import no_room
from fedrelay.errors import BadInput

Bytes: TypeAlias = NDArray[np.uint8]

ALIGNMENT = 64
"""Where torch puts tensors too: some kernels round differently elsewhere."""

UNSENDABLE = (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError, NotImplementedError)
"""What pickling ends in if it cannot be."""

ARRAY = "array"
"""Where an array of NumPy is; of a tensor it is the name of its device."""
SMALLEST_BLOCK = 1 << 16
LONGEST_MESSAGE = 1 << 13
"""What is longer does not go through a pipe: whoever writes to a process that is stopped must not wait for it."""


@dataclass(frozen=True)
class Packed:
    """A tree ready to be laid: `size` bytes of room are needed beside the skeleton."""

    skeleton: bytes
    parts: tuple[tuple[int, torch.Tensor], ...]
    size: int

    def copy_to(self, room: Bytes) -> None:
        """Copy all parts to their places."""
        for start, part in self.parts:
            view_of(room, start, part.dtype, tuple(part.shape)).copy_(part.cpu())


class CannotBeSent(BadInput):
    """Something cannot be sent to another process; the message says what and why."""


def pack(tree: object) -> Packed:
    """Take a tree apart; what was one object in it stays one."""
    file = io.BytesIO()
    packer = _Packer(file)
    try:
        packer.dump(tree)
    except UNSENDABLE as error:
        raise CannotBeSent(f"{error}") from error
    return Packed(file.getvalue(), tuple(packer.parts), packer.size)


def unpack(skeleton: bytes, room: Bytes, *, copy: bool, device: torch.device | None = None) -> Any:
    """The tree again. Without `copy` its tensors are views into the room, good as long as nobody lays anything else.
    What was on a GPU comes to this device, or else to where it was."""
    return _Unpacker(io.BytesIO(skeleton), room, copy=copy, device=device).load()


def view_of(room: Bytes, start: int, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """The tensor that lies at this place."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not size:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(room[start : start + size]).view(dtype).view(shape)


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]
    """Classes and functions that the other side cannot import (a notebook's cell, a lambda) go as what they are."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.parts: list[tuple[int, torch.Tensor]] = []
        self.size = 0
        self._seen: dict[int, object] = {}
        self._kept: list[object] = []  # alive as long as their ids are used

    def persistent_id(self, item: Any) -> object:
        """Tensors and arrays of plain numbers go by place; everything else is pickled as usual."""
        kind = type(item)
        if kind is torch.Tensor:
            if item.device.type == "meta" or item.layout is not torch.strided or item.is_quantized:
                return None
        elif kind is not np.ndarray or item.dtype.kind not in "biuf" or not item.dtype.isnative:
            return None
        if id(item) not in self._seen:
            self._kept.append(item)
            self._seen[id(item)] = self._place(item)
        return self._seen[id(item)]

    def _place(self, item: torch.Tensor | NDArray[Any]) -> tuple[int, tuple[int, ...], str, str]:
        if isinstance(item, np.ndarray):
            kind, where = item.dtype.str, ARRAY
            content = torch.from_numpy(np.ascontiguousarray(item).reshape(-1).view(np.uint8))
        else:
            kind, where = str(item.dtype).removeprefix("torch."), str(item.device)
            content = item.detach()
        start = self.size
        self.parts.append((start, content))
        self.size += -(-content.numel() * content.element_size() // ALIGNMENT) * ALIGNMENT
        return start, tuple(item.shape), kind, where


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, room: Bytes, *, copy: bool, device: torch.device | None) -> None:
        super().__init__(file)
        self._room, self._copy, self._device = room, copy, device
        self._seen: dict[Any, Any] = {}

    def persistent_load(self, place: Any) -> Any:
        if place not in self._seen:
            self._seen[place] = self._at(*place)
        return self._seen[place]

    def _at(self, start: int, shape: tuple[int, ...], kind: str, where: str) -> Any:
        if where == ARRAY:
            size = int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize
            found = self._room[start : start + size].view(kind).reshape(shape)
            return found.copy() if self._copy else found
        view = view_of(self._room, start, getattr(torch, kind), shape)
        if where != "cpu":
            return view.to(self._device or where)
        return view.clone() if self._copy else view


class Block:
    """Bytes that several processes see: a file in a shared folder, mapped into each of them."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size
        self.bytes: Bytes = np.memmap(path, np.uint8, "r+", shape=size)

    @classmethod
    def make(cls, path: Path, size: int) -> Block:
        """A new one of at least this size."""
        size = max(size, SMALLEST_BLOCK)
        try:
            with path.open("xb", buffering=0) as file:
                reserve(file, size)
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink()
            raise no_room(f"{path.parent.parent} has no room for {size / 2**20:.1f} MB", error) from error
        return cls(path, size)


def reserve(file: FileIO, size: int) -> None:
    """Really take the room now: a full disk must be an error here, not the end of the process later."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    elif sys.platform == "win32":
        file.truncate(size)  # it leaves no holes
    else:
        for start in range(0, size, len(ZEROS)):
            file.write(ZEROS[: size - start])


ZEROS = bytes(1 << 20)


class Sender:
    """Lays parcels into a block of its own, one after another in the same place; the block grows with them."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._block: Block | None = None
        self._blocks = 0

    def send(self, tree: object) -> bytes:
        """What to tell the other side, always short; the packed before must have been taken out by now."""
        packed = pack(tree)
        laid = packed.skeleton if len(packed.skeleton) > LONGEST_MESSAGE else b""
        size = packed.size + len(laid)
        if not size:
            return pickle.dumps(Message("", 0, 0, 0, packed.skeleton))
        block = self._room_for(size)
        packed.copy_to(block.bytes)
        block.bytes[packed.size : size] = np.frombuffer(laid, np.uint8)
        skeleton = b"" if laid else packed.skeleton
        return pickle.dumps(Message(str(block.path), block.size, packed.size, len(laid), skeleton))

    def _room_for(self, size: int) -> Block:
        if self._block is None or self._block.size < size:
            self.remove()
            self._blocks += 1
            self._block = Block.make(self._folder / f"{self._name}-{self._blocks}", size + size // 4)
        return self._block

    def remove(self) -> None:
        """Give up the block."""
        if self._block is not None:
            with contextlib.suppress(OSError):  # Windows keeps a file that the other side still maps; its folder goes
                self._block.path.unlink()
            self._block = None


class Message(NamedTuple):
    """Where a packed lies: its block, and the skeleton itself or its place in the block."""

    path: str
    size: int
    start: int
    length: int
    skeleton: bytes


class Receiver:
    """Takes out what a `Sender` in another process laid; keeps its block mapped. What was on a GPU there comes to the
    device of this process, if it has one."""

    def __init__(self, device: torch.device | None = None) -> None:
        self._block: Block | None = None
        self._device = device

    def receive(self, message: bytes, *, copy: bool) -> Any:
        path, size, start, length, skeleton = pickle.loads(message)
        if path and (self._block is None or self._block.path != Path(path)):
            self._block = Block(Path(path), size)
        room = self._block.bytes if self._block is not None else np.empty(0, np.uint8)
        skeleton = skeleton or room[start : start + length].tobytes()
        return unpack(skeleton, room, copy=copy, device=self._device)
