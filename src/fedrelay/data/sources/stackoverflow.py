"""StackOverflow next-word prediction: the HDF5 files of the public federated version, or LEAF-style JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.federation import Source
from fedrelay.data.locate import Layout, find
from fedrelay.data.sources import hdf5
from fedrelay.data.sources.cache import Arrays, cached
from fedrelay.data.sources.checks import check_labels, check_some, examples, wrong
from fedrelay.data.sources.leaf import FILES, joined, leaf_layouts, listed, numbers
from fedrelay.data.sources.tokens import Tokens, Words
from fedrelay.errors import within

HDF5 = ("stackoverflow_train.h5", "stackoverflow_test.h5")
COUNTS = "stackoverflow.word_count"
LAYOUTS = (
    Layout("hdf5", "stackoverflow", HDF5),
    *leaf_layouts("stackoverflow", "stackoverflow/data", "stackoverflow/leaf"),
)
SIGNS = 4  # padding, unknown, begin, end
Sentences = list[list[str]]
Client = tuple[str, NDArray[Any], NDArray[Any]]
_Part = Callable[[], Iterator[tuple[str, Sentences]]]


@dataclass(frozen=True)
class _Limits:
    """How much of the data is taken; all of it would not fit into the memory of most machines."""

    clients: int | None
    sentences: int
    tested: int
    words: int
    length: int

    def __str__(self) -> str:
        return "-".join("all" if value is None else str(value) for value in astuple(self))


def stackoverflow(
    folder: Path,
    *,
    clients: int | None = 40_000,
    sentences: int = 128,
    tested: int = 10_000,
    words: int = 10_000,
    length: int = 20,
) -> Source:
    """The next word at every place of a sentence, by author, over the commonest words and 4 signs (StackOverflow).

    The first `clients` authors with up to `sentences` each are trained on, the first `tested` sentences of the test
    part are tested on. A sentence is its first `length` words. Padding: 0 in the inputs, -100 in the targets.
    """
    limits = _Limits(clients, sentences, tested, words, length)
    for name, value in vars(limits).items():
        if value is not None:
            within(name, value, least=1)
    layout, base = find("stackoverflow", folder, LAYOUTS)
    if layout.kind == "hdf5":
        files = [base / name for name in HDF5]
    else:
        files = sorted(path for pattern in FILES for path in base.glob(pattern))
    counts = [base / COUNTS] if (base / COUNTS).exists() else []
    build = _from_hdf5 if layout.kind == "hdf5" else _from_leaf
    stored = cached(base, f"stackoverflow-{limits}", [*files, *counts], lambda: build(base, limits))
    return Source(
        "stackoverflow",
        train=examples(stored["train_x"], stored["train_y"], Tokens()),
        test=examples(stored["test_x"], stored["test_y"], Tokens()),
        classes=int(stored["classes"]),
        owners=stored["owners"],
        owner_names=tuple(map(str, stored["names"])),
    )


def _from_hdf5(base: Path, limits: _Limits) -> Arrays:
    def part(name: str, clients: int | None) -> Iterator[tuple[str, Sentences]]:
        for client, columns in hdf5.clients(base / name, ("tokens",), clients):
            texts = columns["tokens"].reshape(-1)[: limits.sentences].tolist()
            yield client, [_words(base / name, client, text) for text in texts]

    return _coded(base, limits, lambda: part(HDF5[0], limits.clients), lambda: part(HDF5[1], None))


def _from_leaf(base: Path, limits: _Limits) -> Arrays:
    """Sentences as words (or one text each), or already as numbers with their next words as targets."""
    _, _, x, _ = next(listed(base / "train"), (None, None, [None], None))
    if isinstance(x[0], list) and x[0] and isinstance(x[0][0], int):
        classes = limits.words + SIGNS
        train = (_numbered(limits, *client) for client in islice(listed(base / "train"), limits.clients))
        test = (_numbered(limits, *client) for client in listed(base / "test"))
        return _arrays(base, limits, train, test, classes)

    def part(name: str, clients: int | None) -> Iterator[tuple[str, Sentences]]:
        for path, client, texts, _ in islice(listed(base / name), clients):
            yield client, [_words(path, client, text) for text in texts[: limits.sentences]]

    return _coded(base, limits, lambda: part("train", limits.clients), lambda: part("test", None))


def _words(path: Path, client: str, text: Any) -> list[str]:
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="replace")
    words = text.split() if isinstance(text, str) else text
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise wrong(path, f"sentences of words for client {client!r}", f"one that is {str(text)[:40]}")
    return words


def _numbered(limits: _Limits, path: Path, client: str, x: list[Any], y: list[Any]) -> Client:
    """Inputs and targets that are numbers already; a target is the next word, or the next one at every place."""
    where = f"{path}, client {client!r}"
    inputs = numbers(path, f"x of client {client!r}", x[: limits.sentences], np.int64)
    targets = numbers(path, f"y of client {client!r}", y[: limits.sentences], np.int64)
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if inputs.ndim != 2 or (targets.ndim != 1 and targets.shape != inputs.shape):
        raise wrong(where, "inputs (n, length) and targets (n) or (n, length)", f"{inputs.shape} and {targets.shape}")
    for values in (inputs, targets):
        check_labels(where, values, limits.words + SIGNS)
    return client, inputs.astype(np.int32), targets


def _coded(base: Path, limits: _Limits, train: _Part, test: _Part) -> Arrays:
    words = Words.of(_vocabulary(base, limits, train))

    def encoded(part: _Part) -> Iterator[Client]:
        for client, sentences in part():
            yield client, *words.encode(sentences, limits.length)

    return _arrays(base, limits, encoded(train), encoded(test), words.size)


def _vocabulary(base: Path, limits: _Limits, train: _Part) -> list[str]:
    """The commonest words: of the published counts, or else of what is trained on."""
    path = base / COUNTS
    if not path.exists():
        counted = Counter(word for _, sentences in train() for word in chain.from_iterable(sentences))
        check_some(base, len(counted))
        return sorted(counted, key=lambda word: (-counted[word], word))[: limits.words]
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[: limits.words]
    bad = [place for place, line in enumerate(lines, start=1) if len(line.split()) != 2]
    if bad or not lines:
        found = f"{len(bad)} others, the first in line {bad[0]}" if bad else "nothing"
        raise wrong(path, "lines of a word and its count", found)
    return [line.split()[0] for line in lines]


def _arrays(base: Path, limits: _Limits, train: Iterable[Client], test: Iterable[Client], classes: int) -> Arrays:
    train_x, train_y, owners, names = joined(base, train)
    test_x, test_y, _, _ = joined(base, _until(test, limits.tested))
    return {
        "train_x": train_x,
        "train_y": train_y,
        "owners": owners,
        "names": np.array(names),
        "test_x": test_x[: limits.tested],
        "test_y": test_y[: limits.tested],
        "classes": np.array(classes),
    }


def _until(clients: Iterable[Client], sentences: int) -> Iterator[Client]:
    """Clients until there are this many sentences."""
    count = 0
    for name, x, y in clients:
        yield name, x, y
        count += len(y)
        if count >= sentences:
            return
