"""A federation of arrays or tensors in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.data.augment import Normalise
from fedrelay.data.examples import Target
from fedrelay.data.federation import Examples, Federation, Rows, Sent, Source, Transform
from fedrelay.data.own.frames import aligned
from fedrelay.data.own.several import from_several, is_several
from fedrelay.data.own.targets import Arrays, check_classes, check_dense, number_of, understood
from fedrelay.data.partitions.basic import Natural
from fedrelay.data.sources.checks import check_clients, check_numbers, wrong
from fedrelay.data.sources.images import held_out
from fedrelay.data.survey import scaled
from fedrelay.errors import BadInput, within

Pair = tuple[Any, Any]
"""Inputs and targets: NumPy arrays, tensors or nested lists."""


def from_arrays(
    clients: Mapping[str, Pair] | Sequence[Pair],
    *,
    test: Pair | float = 0.2,
    classes: int | None = None,
    name: str = "own",
    class_names: Sequence[str] = (),
    transform: Transform | None = None,
    channels: str = "last",
    tokens: bool | int = False,
    levels: tuple[float, ...] | Literal["range"] | None = None,
    target: Target | None = None,
) -> Federation:
    """A federation of (inputs, targets) per client, in a dict by name or in a list.

    Inputs are (n, features) or images (n, height, width, channels) (with `channels` = "first": as torch has them).
    Images of bytes are scaled to -1 … 1; so are those of 16 bits (`uint16`), from the range that all clients' images
    have together, or from `levels`; and those of floats, if you give their levels or say "range".
    With `tokens`, inputs are whole numbers that stand for words; without, whole numbers are features like all others.
    There are as many tokens as classes, unless `tokens` says how many: so texts can be told apart into a few classes.
    Targets are classes (n), with `tokens` also the next one at every place (n, length), masks (n, height, width) with a
    class for every pixel (-100 does not count in these two), labels (n, labels) of 0 and 1, or floats: numbers (n) or
    (n, numbers). `target` says which of them, where it is not plain.
    `test` is a pair of its own, or the share that is held out of every client.

    Frames of pandas or polars are taken as arrays; their columns go by name. Several inputs per example are a dict or
    tuple of arrays, of which whole numbers stay whole numbers: the network is yours.
    """
    form = _Form(channels, bool(tokens))
    named = clients if isinstance(clients, Mapping) else {f"client {i}": pair for i, pair in enumerate(clients)}
    if not named:
        raise BadInput(f"{name}: expected at least one client, found none")
    named, test = aligned(name, named, test)
    if any(map(is_several, named.values())):
        return from_several(
            *(name, named), test=test, classes=classes, class_names=class_names, transform=transform, channels=channels
        )
    parts = [_part(str(label), pair, form) for label, pair in named.items()]
    check_clients(name, [part.name for part in parts], [len(part.y) for part in parts])
    share = float(test) if isinstance(test, int | float) else None
    tested = [] if isinstance(test, int | float) else [_part("test part", test, form)]
    check_clients(name, [part.name for part in tested], [len(part.y) for part in tested])
    _check_alike(name, [*parts, *tested])
    parts, tested, count = _with_targets(
        name, parts, tested, target, classes, class_names, None if tokens is True else int(tokens)
    )
    whole = _joined(parts)
    owners = np.repeat(np.arange(len(parts)), [len(part.y) for part in parts])
    kept, held = np.arange(len(owners)), np.arange(0)
    if share is not None:
        kept, held = _held_out(name, owners, share)
        tested = [_Part("test part", whole.x[held], whole.y[held])]
    train_x, test_x, sent, scale = whole.x[kept], tested[0].x, Sent(), None
    deep = train_x.dtype == np.uint16 or (levels is not None and train_x.dtype == np.float32 and train_x.ndim == 4)
    if deep:
        given = None if levels == "range" else levels
        both = np.concatenate([train_x, test_x]).astype(np.float32)
        both, scale, sent = scaled(name, both, owners[kept], np.arange(len(kept)), given)
        train_x, test_x = both[: len(kept)], both[len(kept) :]
    if transform is None and (deep or train_x.dtype == np.uint8):
        transform = Normalise((0.5,), (0.5,))
    source = Source(
        name,
        train=Examples(torch.from_numpy(train_x), torch.from_numpy(whole.y[kept]), transform),
        test=Examples(torch.from_numpy(test_x), torch.from_numpy(tested[0].y), transform),
        classes=count,
        owners=owners[kept],
        owner_names=tuple(part.name for part in parts),
        class_names=tuple(map(str, class_names)),
        test_owners=None if share is None else owners[held],
        prepared=sent,
        levels=scale,
    )
    return Federation.split(source, Natural())


@dataclass(frozen=True)
class _Form:
    """How inputs are to be understood."""

    channels: str
    tokens: bool

    def __post_init__(self) -> None:
        if self.channels not in ("first", "last"):
            raise BadInput(f'channels must be "first" or "last", not {self.channels!r}')


@dataclass(frozen=True)
class _Part:
    """The inputs and targets of one client or of the test part."""

    name: str
    x: NDArray[Any]
    y: NDArray[Any]


def _part(name: str, pair: Any, form: _Form) -> _Part:
    try:
        first, second = pair
    except (TypeError, ValueError):
        raise wrong(name, "a pair of inputs and targets", f"a {type(pair).__name__}") from None
    x, y = _inputs(name, _array(name, first), form), _array(name, second)
    if len(x) != len(y):
        raise wrong(name, "one target per input", f"{len(x)} inputs and {len(y)} targets")
    return _Part(name, x, y)


def _array(name: str, values: Any) -> NDArray[Any]:
    if isinstance(values, torch.Tensor):
        return values.detach().cpu().numpy()
    try:
        return np.asarray(values)
    except ValueError as error:
        raise wrong(name, "inputs and targets of one shape", f"others ({error})") from None


def _inputs(name: str, x: NDArray[Any], form: _Form) -> NDArray[Any]:
    if x.dtype.kind not in "fiub" or x.ndim < 2:
        raise wrong(name, "inputs to be numbers of shape (n, …)", f"{x.dtype} of shape {x.shape}")
    if form.tokens:
        if x.dtype.kind not in "iu":
            raise wrong(name, "tokens to be whole numbers", f"{x.dtype}")
        return np.require(x.astype(np.int64), requirements=("C", "W"))
    if x.ndim == 3 and x.dtype in (np.uint8, np.uint16):
        x = x[..., None]  # grey images
    elif x.ndim == 4 and form.channels == "first":
        x = x.transpose(0, 2, 3, 1)
    if x.ndim == 4 and x.shape[-1] > 4 >= x.shape[1]:
        hint = 'if the channels come first, say channels="first"'
        raise wrong(name, "images (n, height, width, channels)", f"shape {x.shape}; {hint}")
    if x.ndim != 4 or x.dtype not in (np.uint8, np.uint16):
        with np.errstate(over="ignore"):
            x = x.astype(np.float32)
        _check_columns(name, x)
        check_numbers(name, x)
    return np.require(x, requirements=("C", "W"))


def _check_columns(name: str, x: NDArray[np.float32]) -> None:
    """Refuse features that are not numbers, with the columns they are in."""
    if x.ndim != 2:
        return
    for what, bad in (("NaN", np.isnan(x)), ("infinite", np.isinf(x))):
        columns = np.flatnonzero(bad.any(axis=0))
        if len(columns):
            named = ", ".join(f"{column} ({int(bad[:, column].sum())})" for column in columns[:10])
            more = " …" if len(columns) > 10 else ""
            found = f"{int(bad.sum())} of {x.size} values that are {what}, in column {named}{more}"
            raise wrong(name, "numbers", f"{found}; from_frames fills gaps in")


def _check_alike(name: str, parts: Sequence[_Part]) -> None:
    """Refuse clients whose examples look different from the first one's, by name and with their count."""
    kinds = [(part.x.shape[1:], str(part.x.dtype), part.y.shape[1:]) for part in parts]
    odd = [part.name for part, kind in zip(parts, kinds, strict=True) if kind != kinds[0]]
    if odd:
        (x, dtype, y), other = kinds[0], kinds[[part.name for part in parts].index(odd[0])]
        expected = f"inputs {x} of {dtype} and targets {y} everywhere as in {parts[0].name}"
        raise wrong(
            name, expected, f"{len(odd)} others, the first {odd[0]} with {other[0]} of {other[1]} and {other[2]}"
        )


def _with_targets(
    name: str,
    parts: Sequence[_Part],
    tested: Sequence[_Part],
    target: Target | None,
    classes: int | None,
    class_names: Sequence[str],
    words: int | None = None,
) -> tuple[list[_Part], list[_Part], int]:
    """The parts with targets in the form of their kind, and how many classes (labels, numbers) there are."""
    every = [*parts, *tested]
    tokens = every[0].x.dtype == np.int64
    kind, made = understood(name, [(part.name, part.y) for part in every], target, tokens=tokens)
    if kind in ("labels", "numbers"):
        count = number_of(name, kind, made, classes)
    else:
        count = _classes([] if words else every, made, classes, class_names)
    if class_names and len(class_names) != count:
        raise wrong(name, f"{count} names of classes", f"{len(class_names)}")
    if kind not in ("labels", "numbers"):
        _check_tokens(every, words or count)
        check_classes(name, made, count, gaps=kind != "classes")
    done = [replace(part, y=y) for part, (_, y) in zip(every, made, strict=True)]
    return done[: len(parts)], done[len(parts) :], count


def _classes(parts: Sequence[_Part], made: Arrays, classes: int | None, class_names: Sequence[str]) -> int:
    """The number of classes (or of tokens): as given, or one more than the largest."""
    if classes is not None:
        return classes
    largest = max(int(y.max()) for _, y in made)
    if parts and parts[0].x.dtype == np.int64:
        largest = max(largest, *(int(part.x.max()) for part in parts))
    elif not class_names and made[0][1].ndim == 1:
        check_dense(made[0][0], largest, len(np.unique(np.concatenate([y for _, y in made]))))
    return len(class_names) or largest + 1


def _check_tokens(parts: Sequence[_Part], tokens: int) -> None:
    for part in parts:
        outside = int(((part.x < 0) | (part.x >= tokens)).sum()) if part.x.dtype == np.int64 else 0
        if outside:
            raise wrong(part.name, f"tokens from 0 to {tokens - 1}", f"{outside} outside")


def _joined(parts: Sequence[_Part]) -> _Part:
    return _Part("all", np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts]))


def _held_out(name: str, owners: Rows, share: float) -> tuple[Rows, Rows]:
    within("test", share, above=0, most=0.9)
    kept, held = held_out(owners, share, name)
    if not len(held):
        raise wrong(name, "some client with two examples, to test on one", "none; give a test part")
    return kept, held
