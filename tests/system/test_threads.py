"""Threads that share a piece of work."""

from __future__ import annotations

import _thread
import threading
import time

import pytest
import torch

from fedrelay.system.threads import flushes_denormals, operator_threads, side_by_side


def test_everyone_works_at_once_and_every_item_is_done_by_one():
    meeting, done = threading.Barrier(3, timeout=30), list[tuple[str, int, int]]()

    def work(hand: str, item: int) -> None:
        if item < 3:
            meeting.wait()  # nobody comes past it alone
        done.append((hand, item, threading.get_ident()))

    side_by_side(work, ["a", "b", "c"], range(20))
    assert sorted(item for _, item, _ in done) == list(range(20))
    assert {hand for hand, _, _ in done} == {"a", "b", "c"}
    threads = {hand: {thread for other, _, thread in done if other == hand} for hand in "abc"}
    assert all(len(those) == 1 for those in threads.values())
    assert threads["a"] == {threading.get_ident()}
    assert len(set.union(*threads.values())) == 3


@pytest.mark.parametrize("who", ["a", "b"])
def test_what_one_raises_is_raised_when_the_other_has_ended_and_the_rest_is_left(who):
    meeting, ended = threading.Barrier(2, timeout=30), list[int]()

    def work(hand: str, item: int) -> None:
        meeting.wait()
        if hand == who:
            raise LookupError(hand)
        time.sleep(0.2)
        ended.append(item)

    with pytest.raises(LookupError, match=who):
        side_by_side(work, ["a", "b"], range(100))
    assert len(ended) == 1


def test_an_interrupt_while_others_are_waited_for_leaves_nobody_at_work():
    begun, items = threading.Event(), list[int]()

    def work(hand: str, item: int) -> None:
        if hand == "a":
            begun.wait(30)
            return
        begun.set()
        if not items:
            time.sleep(0.3)
            _thread.interrupt_main()  # as Ctrl-C does; the first hand has no more to do by now, and waits
            time.sleep(0.3)
        items.append(item)

    with pytest.raises(KeyboardInterrupt):
        side_by_side(work, ["a", "b"], range(2))
    assert items


def test_where_no_thread_can_be_started_one_does_it_all(monkeypatch):
    def refused(*given) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refused)
    done = list[tuple[str, int]]()
    side_by_side(lambda hand, item: done.append((hand, item)), ["a", "b"], range(5))
    assert done == [("a", item) for item in range(5)]


@pytest.mark.parametrize("count", [1, 2])
def test_operators_and_small_numbers_are_as_where_they_were_started(count):
    meeting, found = threading.Barrier(3, timeout=30), list[tuple[int, bool]]()

    def work(hand: int, item: int) -> None:
        meeting.wait()
        found.append((torch.get_num_threads(), flushes_denormals()))

    with operator_threads(count):
        here = torch.get_num_threads(), flushes_denormals()
        side_by_side(work, range(3), range(3))
        assert (torch.get_num_threads(), flushes_denormals()) == here == (count, True)
    assert found == [(count, True)] * 3
