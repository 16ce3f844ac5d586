"""Threads that share a piece of work."""

from __future__ import annotations

import threading

import pytest
import torch

from fedrelay.system.threads import flushes_denormals, operator_threads, side_by_side


def test_everyone_works_at_once_and_all_have_ended():
    meeting, done = threading.Barrier(3, timeout=30), list[tuple[str, int]]()

    def work(hand: str) -> None:
        meeting.wait()  # nobody comes past it alone
        done.append((hand, threading.get_ident()))

    side_by_side(work, ["a", "b", "c"])
    assert {hand for hand, _ in done} == {"a", "b", "c"}
    assert len({thread for _, thread in done}) == 3
    assert dict(done)["a"] == threading.get_ident()


@pytest.mark.parametrize("who", ["a", "b"])
def test_what_one_raises_is_raised_when_the_other_has_ended(who):
    ended = list[str]()

    def work(hand: str) -> None:
        if hand == who:
            raise KeyboardInterrupt(hand)
        ended.append(hand)

    with pytest.raises(KeyboardInterrupt, match=who):
        side_by_side(work, ["a", "b"])
    assert ended == [{"a": "b", "b": "a"}[who]]


@pytest.mark.parametrize("count", [1, 2])
def test_operators_and_small_numbers_are_as_where_they_were_started(count):
    found = list[tuple[int, bool]]()
    with operator_threads(count):
        here = torch.get_num_threads(), flushes_denormals()
        side_by_side(lambda _: found.append((torch.get_num_threads(), flushes_denormals())), range(3))
        assert (torch.get_num_threads(), flushes_denormals()) == here == (count, True)
    assert found == [(count, True)] * 3
