"""Trees as bytes, for clients elsewhere: plain data as JSON, tensors as their raw bytes. Nothing in them is ever run.

A message is the length of its head (4 bytes), the head, and the bytes of every tensor, each where 64 divides its place.
The head is JSON: `tree`, in which a tensor is its number, and `tensors`, with the type and the shape of each.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

ALIGNMENT = 64
LENGTH = 4
DEEPEST = 60
"""Levels of a tree, and dimensions of a tensor: more is no message of ours."""

TYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}


class Malformed(ValueError):
    """Bytes that are no message, or a tree that cannot be one; the text says what is wrong."""


def encode(tree: object) -> bytearray:
    """The bytes of a tree of plain data and tensors."""
    tensors: list[torch.Tensor] = []
    plain = _plain(tree, tensors, 0)
    facts = [[str(part.dtype).removeprefix("torch."), list(part.shape)] for part in tensors]
    head = json.dumps({"tree": plain, "tensors": facts}, ensure_ascii=False, separators=(",", ":")).encode()
    places, end = _places(LENGTH + len(head), tensors)
    message = bytearray(end)
    message[:LENGTH] = len(head).to_bytes(LENGTH, "little")
    message[LENGTH : LENGTH + len(head)] = head
    for start, part in zip(places, tensors, strict=True):
        if part.numel():
            room = torch.frombuffer(message, dtype=part.dtype, count=part.numel(), offset=start)
            room.copy_(part.detach().reshape(-1))
    return message


def decode(message: bytes | bytearray | memoryview) -> Any:
    """The tree again. Its tensors are copies that lie as torch lays them: some kernels round differently elsewhere."""
    view = memoryview(message)
    length = int.from_bytes(view[:LENGTH], "little")
    if len(view) < LENGTH or length > len(view) - LENGTH:
        raise Malformed(f"{len(view)} bytes are too few for a head of {length}")
    try:
        head = json.loads(bytes(view[LENGTH : LENGTH + length]))
        plain, facts = head["tree"], [(TYPES[kind], tuple(shape)) for kind, shape in head["tensors"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Malformed(f"its head cannot be read ({type(error).__name__}: {error!s:.100})") from None
    try:
        return _tree(plain, _tensors(view, LENGTH + length, facts), 0)
    except Malformed:
        raise
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise Malformed(f"its tree cannot be read ({type(error).__name__}: {error!s:.100})") from None


def _tensors(view: memoryview, start: int, facts: Sequence[tuple[torch.dtype, tuple[int, ...]]]) -> list[torch.Tensor]:
    """All tensors of a message, which must be just as long as they say."""
    for _, shape in facts:
        if len(shape) > DEEPEST or not all(type(side) is int and 0 <= side < 1 << 40 for side in shape):
            raise Malformed(f"a tensor has the shape {shape!s:.100}")
    sizes = [math.prod(shape) * dtype.itemsize for dtype, shape in facts]
    expected = start + sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes) + (-start % ALIGNMENT if facts else 0)
    if expected != len(view):  # before anything is made: a head may promise more than there is memory
        raise Malformed(f"it has {len(view)} bytes, and its head says {expected}")
    found, end = [], -(-start // ALIGNMENT) * ALIGNMENT
    for (dtype, shape), size in zip(facts, sizes, strict=True):
        tensor = torch.empty(shape, dtype=dtype)
        if size:
            raw = np.frombuffer(view, np.uint8, count=size, offset=end)
            tensor.reshape(-1).view(torch.uint8).numpy()[:] = raw
        found.append(tensor)
        end += -(-size // ALIGNMENT) * ALIGNMENT
    return found


def _places(start: int, tensors: Sequence[torch.Tensor]) -> tuple[list[int], int]:
    """Where every tensor lies, and where the message ends."""
    places, end = [], -(-start // ALIGNMENT) * ALIGNMENT if tensors else start
    for part in tensors:
        places.append(end)
        end += -(-part.numel() * part.element_size() // ALIGNMENT) * ALIGNMENT
    return places, end


def _plain(part: object, tensors: list[torch.Tensor], depth: int) -> Any:
    """A tree as JSON has it: lists are lists, all else that JSON lacks is a table with one key that says what it is."""
    if depth > DEEPEST:
        raise Malformed("the tree is nested too deeply to be sent")
    if part is None or isinstance(part, bool | int | float | str):
        return part.item() if isinstance(part, np.generic) else part
    if isinstance(part, torch.Tensor):
        if str(part.dtype).removeprefix("torch.") not in TYPES:
            raise Malformed(f"a tensor of {part.dtype} cannot be sent")
        tensors.append(part)
        return {"tensor": len(tensors) - 1}
    if isinstance(part, Mapping):
        return {
            "map": [[_plain(key, tensors, depth + 1), _plain(value, tensors, depth + 1)] for key, value in part.items()]
        }
    if isinstance(part, list):
        return [_plain(each, tensors, depth + 1) for each in part]
    if isinstance(part, tuple):
        return {"tuple": [_plain(each, tensors, depth + 1) for each in part]}
    if isinstance(part, np.generic):
        return part.item()
    raise Malformed(f"a {type(part).__name__} cannot be sent: only plain data and tensors can")


def _tree(part: Any, tensors: Sequence[torch.Tensor], depth: int) -> Any:
    if depth > DEEPEST:
        raise Malformed("it is nested too deeply")
    if isinstance(part, list):
        return [_tree(each, tensors, depth + 1) for each in part]
    if not isinstance(part, dict):
        return part
    ((kind, content),) = part.items() if len(part) == 1 else (("", None),)
    if kind == "tensor" and type(content) is int and 0 <= content < len(tensors):
        return tensors[content]
    if kind == "tuple" and isinstance(content, list):
        return tuple(_tree(each, tensors, depth + 1) for each in content)
    if kind == "map" and isinstance(content, list):
        return {_tree(key, tensors, depth + 1): _tree(value, tensors, depth + 1) for key, value in content}
    raise Malformed(f"a part of its tree is {kind!r:.40}, which is nothing we know")
