"""Trees as Ray sends them: a short skeleton, and one array that every process of a machine looks at in place."""

from __future__ import annotations

import warnings
from typing import Any, TypeAlias

import numpy as np

from fedrelay.engines.packing import ALIGNMENT, Bytes, Packed, unpack

Sent: TypeAlias = tuple[bytes, Bytes]


def sent(packed: Packed) -> Sent:
    """A packed tree as plain data."""
    room = np.empty(packed.size, np.uint8)
    packed.copy_to(room)
    return packed.skeleton, room


def received(parcel: Sent, *, copy: bool) -> Any:
    """The tree again; without `copy` its tensors must not be written to, which would end the process."""
    skeleton, room = parcel
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return unpack(skeleton, room if copy else aligned(room), copy=copy)


def aligned(room: Bytes) -> Bytes:
    """These bytes where tensors begin as everywhere else; large ones lie so already, and small ones are copied."""
    if room.ctypes.data % ALIGNMENT == 0:
        return room
    wider = np.empty(room.size + ALIGNMENT, np.uint8)
    start = -wider.ctypes.data % ALIGNMENT
    found: Bytes = wider[start : start + room.size]
    found[:] = room
    return found
