"""Reads the pickles of published data sets without running them: anything but plain values and arrays is refused."""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.sources.checks import wrong
from fedrelay.errors import BadInput

ALLOWED_STEPS = frozenset(
    step
    for group in (
        ("PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK"),
        ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET"),
        ("NONE", "NEWTRUE", "NEWFALSE", "FLOAT", "BINFLOAT"),
        ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
        ("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        ("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
        ("EMPTY_LIST", "LIST", "APPEND", "APPENDS", "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS"),
        ("GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD"),  # only of what is KNOWN below
    )
    for step in group
)
ALLOWED_KINDS = {"u1": np.uint8, "i8": np.int64, "i4": np.int32}


class _Kind:
    """Stands in for numpy.dtype: remembers the name, ignores the rest."""

    def __init__(self, name: Any, *_: Any) -> None:
        self.name = name.decode("latin1") if isinstance(name, bytes) else name

    def __setstate__(self, state: Any) -> None:
        pass


class _Stored:
    """Stands in for numpy.ndarray: keeps what was pickled, untouched, for `array` to check."""

    def __init__(self) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def array(self, where: Path) -> NDArray[Any]:
        """The array, if it is a plain one of a known kind and as long as it says."""
        try:
            _, shape, kind, fortran, raw = self.state
            dtype = np.dtype(ALLOWED_KINDS[kind.name]).newbyteorder("<")
            data = raw.encode("latin1") if isinstance(raw, str) else raw
            flat = np.frombuffer(data, dtype=dtype)
            result: NDArray[Any] = flat.reshape(shape, order="F" if fortran else "C")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise wrong(where, "an array of bytes or whole numbers", f"something else ({error})") from None
        if result.ndim != len(shape) or result.shape != tuple(shape):
            raise wrong(where, f"an array of shape {shape}", f"one of shape {result.shape}")
        return result


def _stored(*_: Any) -> _Stored:
    return _Stored()


def _encoded(text: Any, encoding: Any = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError("only text in latin1 may be turned into bytes")
    return text.encode("latin1")


KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _stored,
    ("numpy._core.multiarray", "_reconstruct"): _stored,
    ("numpy", "ndarray"): _Stored,
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _encoded,
}


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return KNOWN[module, name]


def load(path: Path) -> dict[str, Any]:
    """The dictionary of a pickled batch, with text keys; arrays are `_Stored` until `array` has checked them."""
    data = path.read_bytes()
    try:
        _check_steps(data)
        found = _Restricted(io.BytesIO(data), encoding="bytes").load()
    except BadInput:
        raise
    except Exception as error:  # a damaged pickle can fail in any way; it has only met plain values until then
        raise wrong(
            path, "a pickle of plain values and arrays", f"{type(error).__name__}: {error}; nothing of it was run"
        ) from None
    if not isinstance(found, dict):
        raise wrong(path, "a pickled dictionary", f"a {type(found).__name__}")
    return {key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in found.items()}


def array(path: Path, batch: dict[str, Any], key: str) -> NDArray[Any]:
    """The array stored under this key."""
    stored = _entry(path, batch, key)
    if not isinstance(stored, _Stored):
        raise wrong(path, f"an array {key!r}", f"a {type(stored).__name__}")
    return stored.array(path)


def numbers(path: Path, batch: dict[str, Any], key: str) -> NDArray[np.int64]:
    """The list of whole numbers stored under this key."""
    stored = _entry(path, batch, key)
    if not isinstance(stored, list) or not all(type(item) is int and abs(item) < 2**31 for item in stored):
        raise wrong(path, f"a list of whole numbers {key!r}", f"a {type(stored).__name__} of other things")
    return np.array(stored, dtype=np.int64)


def _entry(path: Path, batch: dict[str, Any], key: str) -> Any:
    if key not in batch:
        raise wrong(path, f"an entry {key!r}", f"only {', '.join(map(repr, batch)) or 'nothing'}")
    return batch[key]


def _check_steps(data: bytes) -> None:
    """Walk through the pickle before anything is loaded.

    Besides unknown steps this stops memory slots far beyond the number of steps, for which the unpickler would
    allocate a table of that length.
    """
    for count, (step, argument, _) in enumerate(pickletools.genops(data), start=1):
        if step.name not in ALLOWED_STEPS:
            raise pickle.UnpicklingError(f"it has a step {step.name}")
        if step.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > count:
            raise pickle.UnpicklingError(f"it keeps a value in slot {argument} after {count} steps")
