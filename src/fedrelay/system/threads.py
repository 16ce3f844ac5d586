"""Threads: how many an operator has, and several that share one piece of work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")


@contextmanager
def operator_threads(count: int) -> Iterator[None]:
    """Inside, operators use this many threads, and numbers too small for full precision are taken as zero.

    Such numbers make a processor many times slower, and say nothing.
    """
    before, flushed = torch.get_num_threads(), flushes_denormals()
    if before != count:
        torch.set_num_threads(count)
    if not flushed:
        torch.set_flush_denormal(True)
    try:
        yield
    finally:
        if not flushed:
            torch.set_flush_denormal(False)
        if before != count:
            torch.set_num_threads(before)


_TINY = 1e-300


def flushes_denormals() -> bool:
    """Whether numbers too small for full precision are taken as zero now, in this thread: Python computes as torch
    does."""
    return _TINY * 1e-10 == 0.0


def side_by_side(work: Callable[[T], None], hands: Sequence[T]) -> None:
    """Do the work with each of these at once: with the first in this thread, with every other in one of its own, where
    operators have as many threads as here. All have ended when it returns, or raises what one of them raised."""
    count, flushed = torch.get_num_threads(), flushes_denormals()
    failures: list[BaseException] = []

    def elsewhere(hand: T) -> None:
        if torch.get_num_threads() != count:
            torch.set_num_threads(count)
        torch.set_flush_denormal(flushed)
        try:
            work(hand)
        except BaseException as error:
            failures.append(error)

    others = [threading.Thread(target=elsewhere, args=(hand,), daemon=True) for hand in hands[1:]]
    for thread in others:
        thread.start()
    try:
        work(hands[0])
    finally:
        for thread in others:
            thread.join()
    if failures:
        raise failures[0]
