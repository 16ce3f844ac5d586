"""Text as numbers: the 80 characters of LEAF, windows over a text, and vocabularies of words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters of LEAF's Shakespeare, in its order (LEAF 2018, language_utils)."""
SPACE = LETTERS.index(" ")
NOTHING = -100
"""The target where a sequence has ended; losses and metrics leave it out."""

_CODE = np.full(256, SPACE, dtype=np.uint8)
_CODE[[ord(letter) for letter in LETTERS]] = np.arange(len(LETTERS), dtype=np.uint8)


@dataclass(frozen=True)
class Tokens:
    """Tokens are stored in as few bytes as they need; a network takes 64-bit ones."""

    def __call__(self, x: torch.Tensor, rng: np.random.Generator | None, /) -> torch.Tensor:
        return x.to(torch.int64)


def letters(text: str) -> NDArray[np.uint8]:
    """A text as numbers 0 … 79; a character outside the 80 counts as a space, LEAF's sign for the unknown."""
    points = np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), dtype="<u4")
    codes: NDArray[np.uint8] = _CODE[np.minimum(points, len(_CODE) - 1)]
    return codes


def windows(text: NDArray[np.uint8], length: int, stride: int = 1) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Every character with the `length` before it; before the beginning there are spaces (LEAF 2018, shake_utils)."""
    padded = np.concatenate([np.full(length, SPACE, dtype=np.uint8), text])
    x = sliding_window_view(padded, length)[:-1:stride]
    return x, text[::stride]


@dataclass(frozen=True)
class Words:
    """A vocabulary: 0 pads, the words follow from 1 on, then unknown, begin and end (Reddi et al. 2021)."""

    code: Mapping[str, int]

    @classmethod
    def of(cls, words: Iterable[str]) -> Words:
        return cls({word: place for place, word in enumerate(words, start=1)})

    @property
    def unknown(self) -> int:
        return len(self.code) + 1

    @property
    def begin(self) -> int:
        return len(self.code) + 2

    @property
    def end(self) -> int:
        return len(self.code) + 3

    @property
    def size(self) -> int:
        """Of the vocabulary with its four signs."""
        return len(self.code) + 4

    def encode(self, sentences: Sequence[Sequence[str]], length: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Inputs and next words, each (sentences, length): begin w₁ w₂ … and w₁ w₂ … end, cut or padded."""
        rows = np.zeros((len(sentences), length + 1), dtype=np.int16 if self.size <= 2**15 else np.int32)
        get, unknown = self.code.get, self.unknown
        for row, sentence in zip(rows, sentences, strict=True):
            coded = [get(word, unknown) for word in sentence[:length]]
            if len(coded) < length:
                coded.append(self.end)
            row[0] = self.begin
            row[1 : 1 + len(coded)] = coded
        y = rows[:, 1:].astype(np.int64)
        y[y == 0] = NOTHING
        return rows[:, :-1], y
