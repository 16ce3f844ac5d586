"""LSTM layers behind a table of tokens, as the compiled library takes them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from torch import nn

from fedrelay.kernels.layers import usable
from fedrelay.models.lstm import Reader
from fedrelay.vectors import Entry

CELLS = 8
"""So many LSTM layers at most, as in `recurrent.h`."""


class Cell(ctypes.Structure):
    """An LSTM layer: where its weights and biases are in the vector, those of what comes in first; -1: none."""

    _fields_ = (
        ("weight", ctypes.c_int64),
        ("recurrent", ctypes.c_int64),
        ("bias", ctypes.c_int64),
        ("recurrent_bias", ctypes.c_int64),
    )


class Reading(ctypes.Structure):
    """What makes the last hidden state of sequences of tokens. Their length is not known before there are some."""

    _fields_ = (
        ("cells", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("table", ctypes.c_int64),
        ("count", ctypes.c_int32),
        ("tokens", ctypes.c_int32),
        ("embedding", ctypes.c_int32),
        ("hidden", ctypes.c_int32),
        ("steps", ctypes.c_int32),
    )
    kept: ctypes.Array[Cell]
    """What `cells` points to."""


def reading_of(name: str, reader: Reader, places: Mapping[str, Entry], seen: set[int]) -> Reading | None:
    """The reader as the library takes it; None if it cannot."""
    table, lstm = reader.embedding, reader.lstm
    own = usable(f"{name}.embedding", table, places, seen) and usable(f"{name}.lstm", lstm, places, seen)
    if not own or reader.every_step or not plain_table(table) or not plain_lstm(lstm, table.embedding_dim):
        return None
    kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    names = [[f"{name}.lstm.{kind}_l{number}" for kind in kinds] for number in range(lstm.num_layers)]
    starts = [[places[part].start if part in places else -1 for part in parts] for parts in names]
    found = Reading(
        table=places[f"{name}.embedding.weight"].start,
        count=lstm.num_layers,
        tokens=table.num_embeddings,
        embedding=table.embedding_dim,
        hidden=lstm.hidden_size,
    )
    found.kept = (Cell * lstm.num_layers)(*(Cell(*parts) for parts in starts))
    found.cells = ctypes.addressof(found.kept)
    return found


def plain_table(table: nn.Embedding) -> bool:
    """Whether every row is learned like any other."""
    special = table.padding_idx is not None or table.max_norm is not None or table.scale_grad_by_freq or table.sparse
    return type(table) is nn.Embedding and not special


def plain_lstm(lstm: nn.LSTM, inputs: int) -> bool:
    """Whether it goes through batches of sequences once, from begin to end, and nothing more."""
    special = lstm.bidirectional or lstm.dropout or lstm.proj_size or not lstm.batch_first
    return type(lstm) is nn.LSTM and not special and lstm.input_size == inputs and lstm.num_layers <= CELLS
