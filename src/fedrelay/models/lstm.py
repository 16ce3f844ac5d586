"""Recurrent networks that predict the next token. The classes are the vocabulary, of inputs and predictions alike.

`every_step` says what is predicted. Without it: the token after the sequence; logits are (batch, vocabulary), targets
(batch,). With it: the token after each position; logits are (batch, length, vocabulary), targets (batch, length), and
the cross-entropy is over all batch x length predictions.
PyTorch's LSTM has two bias vectors per layer where TensorFlow's has one, so its counts exceed the published ones by 4
numbers per unit; the authors' networks (FedSeq journal 2024) are PyTorch's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from fedrelay.models.network import Network, linear_head, tokens, whole_number


class Reader(nn.Module):
    """Tokens to the hidden states of the last layer: of the last step, or of every step."""

    def __init__(self, vocabulary: int, embedding: int, lstm: nn.LSTM, *, every_step: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = lstm
        self.every_step = every_step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point():
            x = x.long()  # tokens may be stored in fewer bits; floats are no tokens, and the embedding says so
        states: torch.Tensor = self.lstm(self.embedding(x))[0]
        return states if self.every_step else states[:, -1]


@dataclass(frozen=True)
class CharLstm:
    """Next character of a text: embedding of 8, two layers of 100 (FedSeq journal 2024; Li et al. 2020, FedProx)."""

    embedding: int = 8
    hidden: int = 100
    layers: int = 2
    every_step: bool = False
    loss: ClassVar[str] = "cross_entropy"

    def __post_init__(self) -> None:
        for field in ("embedding", "hidden", "layers"):
            whole_number(getattr(self, field), field, "char_lstm")

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> Network:
        tokens(shape, "char_lstm")
        head = linear_head(self.hidden, classes, "char_lstm")
        lstm = nn.LSTM(self.embedding, self.hidden, self.layers, batch_first=True)
        return Network(Reader(classes, self.embedding, lstm, every_step=self.every_step), head)


@dataclass(frozen=True)
class WordLstm:
    """Next word of a post: embedding of 96, one layer of 670, back to 96 (Reddi et al. 2021, Table 9).

    The vocabulary of StackOverflow is 10,004: 10,000 words, padding, begin, end and unknown.
    """

    embedding: int = 96
    hidden: int = 670
    every_step: bool = True
    loss: ClassVar[str] = "cross_entropy"

    def __post_init__(self) -> None:
        for field in ("embedding", "hidden"):
            whole_number(getattr(self, field), field, "word_lstm")

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> Network:
        tokens(shape, "word_lstm")
        head = linear_head(self.embedding, classes, "word_lstm")
        lstm = nn.LSTM(self.embedding, self.hidden, batch_first=True)
        reader = Reader(classes, self.embedding, lstm, every_step=self.every_step)
        return Network(nn.Sequential(reader, nn.Linear(self.hidden, self.embedding)), head)
