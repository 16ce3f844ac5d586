"""Frames of pandas or polars as arrays: columns go by name, not by place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedrelay.data.sources.checks import wrong


def columns_of(inputs: Any) -> list[str] | None:
    """The names of a frame's columns; None of anything else."""
    columns = getattr(inputs, "columns", None)
    return None if columns is None or not hasattr(inputs, "__array__") else [str(column) for column in columns]


def aligned(name: str, clients: Mapping[str, Any], test: Any) -> tuple[dict[str, Any], Any]:
    """The same pairs and test part, with the columns of all frames in the order of the first; others are refused."""
    first: tuple[str, list[str]] | None = None
    found, tested = dict(clients), test
    for label, pair in [*clients.items(), (None, test)]:
        columns = columns_of(pair[0]) if isinstance(pair, tuple | list) and len(pair) == 2 else None
        if columns is None:
            continue
        if first is None:
            first = str(label), columns
        missing, more = set(first[1]) - set(columns), set(columns) - set(first[1])
        if missing or more or len(set(columns)) < len(columns):
            what = (
                f"without {sorted(missing)}" if missing else f"with {sorted(more)} too" if more else "with some twice"
            )
            raise wrong(
                f"{name}, {label or 'test part'}",
                f"the columns of {first[0]} ({', '.join(first[1][:10])})",
                f"a frame {what}",
            )
        if columns != first[1]:
            by_name = dict(zip(columns, pair[0].columns, strict=True))
            pair = (pair[0][[by_name[column] for column in first[1]]], pair[1])
            if label is None:
                tested = pair
            else:
                found[label] = pair
    return found, tested
