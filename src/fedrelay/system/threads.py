"""Threads: how many an operator has, and several that share one piece of work."""

from __future__ import annotations

import _thread
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import torch

H = TypeVar("H")
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


def side_by_side(
    work: Callable[[H, T], None], hands: Sequence[H], items: Iterable[T], stop: Callable[[], None] | None = None
) -> None:
    """Do the work on all items: each of the hands takes the next that is left, the first one in this thread, every
    other in one of its own, where operators have as many threads as here. If the system starts no more threads, those
    that there are do it all. Nobody is at work any more when it returns, or raises what one of them raised first;
    `stop` is called then, for those that are in the middle of an item."""
    count, flushed = torch.get_num_threads(), flushes_denormals()
    waiting, failures = deque(items), list[BaseException]()
    begun, ended = list[_thread.LockType](), list[_thread.LockType]()

    def give_up(error: BaseException) -> None:
        waiting.clear()
        failures.append(error)
        if stop is not None:
            stop()

    def go_on(hand: H) -> None:
        try:
            while waiting:
                try:
                    item = waiting.popleft()
                except IndexError:  # another was quicker
                    return
                work(hand, item)
        except BaseException as error:
            give_up(error)

    def elsewhere(hand: H) -> None:
        at_work = _thread.allocate_lock()
        at_work.acquire()
        begun.append(at_work)  # before anything is taken: who is not in this list has nothing, and finds nothing later
        try:
            if torch.get_num_threads() != count:
                torch.set_num_threads(count)
            torch.set_flush_denormal(flushed)
            go_on(hand)
        finally:
            ended.append(at_work)
            at_work.release()

    try:
        with suppress(RuntimeError):
            for hand in hands[1:]:
                _thread.start_new_thread(elsewhere, (hand,))  # Thread would wait until it has begun
        go_on(hands[0])
    except BaseException as error:  # Ctrl-C, between two things
        give_up(error)
    while others := [at_work for at_work in begun if at_work not in ended]:
        try:
            others[0].acquire()
        except KeyboardInterrupt as error:
            give_up(error)
    if failures:
        raise failures[0]
