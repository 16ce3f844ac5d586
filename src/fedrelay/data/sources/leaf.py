"""LEAF exports: folders `train` and `test` of JSON files with users, num_samples and user_data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.locate import Layout
from fedrelay.data.sources.cache import Arrays, cached
from fedrelay.data.sources.checks import bytes_of, check_clients, check_labels, check_numbers, check_some, wrong
from fedrelay.data.sources.tokens import letters

FILES = ("train/*.json", "test/*.json")
Decode = Callable[[Path, str, list[Any], list[Any]], tuple[NDArray[Any], NDArray[Any]]]
"""One client's `x` and `y` as arrays."""


def leaf_layouts(*folders: str) -> tuple[Layout, ...]:
    """Where LEAF's folders `train` and `test` may lie."""
    return tuple(Layout("leaf", folder, FILES) for folder in folders)


def read_leaf(base: Path, kind: str, decode: Decode) -> Arrays:
    """Both parts of an export as arrays train_x, train_y, owners, names, test_x, test_y; kept in a compact cache."""
    files = sorted(path for pattern in FILES for path in base.glob(pattern))

    def build() -> Arrays:
        train_x, train_y, owners, names = _part(base / "train", decode)
        test_x, test_y, _, _ = _part(base / "test", decode)
        return {
            "train_x": train_x,
            "train_y": train_y,
            "owners": owners,
            "names": np.array(names),
            "test_x": test_x,
            "test_y": test_y,
        }

    return cached(base, kind, files, build)


def _part(folder: Path, decode: Decode) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64], list[str]]:
    return joined(folder, ((name, *decode(path, name, x, y)) for path, name, x, y in listed(folder)))


def joined(
    where: Path, clients: Iterable[tuple[str, NDArray[Any], NDArray[Any]]]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64], list[str]]:
    """Inputs, targets and owners of all clients one after another, and the names of the owners."""
    xs: list[NDArray[Any]] = []
    ys: list[NDArray[Any]] = []
    owners: list[NDArray[np.int64]] = []
    places: dict[str, int] = {}
    for name, x, y in clients:
        xs.append(x)
        ys.append(y)
        owners.append(np.full(len(y), places.setdefault(name, len(places)), dtype=np.int64))
    check_some(where, len(ys))
    for what, arrays in (("inputs", xs), ("targets", ys)):
        shapes = sorted({array.shape[1:] for array in arrays})
        if len(shapes) > 1:
            raise wrong(where, f"{what} of one shape", f"shapes {', '.join(map(str, shapes))}")
    return np.concatenate(xs), np.concatenate(ys), np.concatenate(owners), list(places)


def listed(folder: Path) -> Iterator[tuple[Path, str, list[Any], list[Any]]]:
    """File, name, x and y of every client of a part."""
    for path in sorted(folder.glob("*.json")):
        for name, x, y in _clients(path):
            yield path, name, x, y


def _clients(path: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Every listed client of one file. Only those: LEAF leaves empty entries of clients that it has dropped."""
    content = load_json(path)
    users, counts, data = (_key(path, content, *wanted) for wanted in KEYS)
    if len(users) != len(counts):
        raise wrong(path, "one entry of num_samples for each of users", f"{len(counts)} for {len(users)}")
    for name, count in zip(users, counts, strict=True):
        mine = data.get(name) if isinstance(name, str) else None
        if not isinstance(mine, dict) or not all(isinstance(mine.get(key), list) for key in "xy"):
            raise wrong(path, f"lists x and y for client {name!r}", "none" if mine is None else "something else")
        x, y = mine["x"], mine["y"]
        if not len(x) == len(y) == count:
            raise wrong(path, f"{count!r} examples of client {name!r}", f"{len(x)} inputs and {len(y)} targets")
    check_clients(path, users, counts)
    for name in users:
        yield name, data[name]["x"], data[name]["y"]


KEYS: tuple[tuple[str, type], ...] = (("users", list), ("num_samples", list), ("user_data", dict))


def load_json(path: Path) -> dict[str, Any]:
    """The object of a JSON file."""
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:  # also bytes that are not text, and numbers with too many digits
        raise wrong(path, "a whole JSON file", f"a damaged one ({error})") from None
    if not isinstance(content, dict):
        raise wrong(path, "a JSON object", f"a {type(content).__name__}")
    return content


def _key(path: Path, content: dict[str, Any], key: str, kind: type) -> Any:
    if key not in content:
        raise wrong(path, f"a key {key!r}", f"only {', '.join(map(repr, list(content)[:10])) or 'nothing'}")
    if not isinstance(content[key], kind):
        raise wrong(path, f"{key!r} to be a {kind.__name__}", f"a {type(content[key]).__name__}")
    return content[key]


def numbers(path: Path, what: str, values: list[Any], dtype: type[np.generic]) -> NDArray[Any]:
    """Nested lists as an array of numbers, all rows of one length."""
    try:
        array = np.array(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise wrong(path, f"{what} to be rows of numbers of one length", f"others ({error})") from None
    if array.dtype.kind not in ("iuf" if np.issubdtype(dtype, np.floating) else "iu"):
        raise wrong(path, f"{what} to be numbers", f"values such as {str(values[0])[:40]}")
    return array.astype(dtype)


def decode_image(path: Path, name: str, x: list[Any], y: list[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """FEMNIST: 784 grey values from 0 (ink) to 1 (paper), and one of 62 classes."""
    pixels = numbers(path, f"x of client {name!r}", x, np.float64)
    if pixels.shape != (len(x), 784):
        raise wrong(path, f"784 values per image of client {name!r}", f"inputs of shape {pixels.shape[1:]}")
    check_numbers(f"{path}, client {name!r}", pixels, 0, 1)
    labels = numbers(path, f"y of client {name!r}", y, np.int64)
    if labels.shape != (len(y),):
        raise wrong(path, f"one class per image of client {name!r}", f"targets of shape {labels.shape[1:]}")
    check_labels(f"{path}, client {name!r}", labels, 62)
    return bytes_of(pixels).reshape(-1, 28, 28, 1), labels


def decode_letters(path: Path, name: str, x: list[Any], y: list[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Shakespeare: texts of 80 characters, and the next character of each."""
    for what, texts, length in (("80 characters", x, 80), ("1 character", y, 1)):
        bad = sum(not isinstance(text, str) or len(text) != length for text in texts)
        if bad:
            where = f"{path}, client {name!r}"
            raise wrong(where, f"texts of {what}", f"{bad} of {len(texts)} that are something else")
    return letters("".join(x)).reshape(-1, 80), letters("".join(y))
