"""Work around another work is the other's in all that it does not say itself."""

from __future__ import annotations

import fedrelay as fr
from fedrelay.types import Work
from fedrelay.visits.around import Around
from fedrelay.visits.defended import Defended
from fedrelay.visits.noise import Noised
from fedrelay.visits.own_test import own_test_of
from fedrelay.visits.private import AtHome, Private


def test_nothing_that_a_work_says_of_itself_is_lost_by_what_is_done_around_it():
    said = {name for name in vars(Work) if not name.startswith("_")}
    assert said
    assert said <= set(vars(Around))


def test_a_bound_and_the_need_of_the_last_model_are_seen_through_noise():
    defended = Defended(fr.Sgd(steps=1), bound=0.5, tolerance=2.0)
    noised = Noised(defended, clip=1.0, noise=1.0)
    assert noised.bound == 0.5
    assert noised.reads_global


def test_clients_test_with_their_own_parts_whatever_is_done_around_them():
    home = AtHome(fr.Sgd(steps=1), Private(parts=("head",)))
    assert own_test_of(Noised(Defended(home), clip=1.0, noise=1.0)).home is home
    assert own_test_of(Defended(fr.Sgd(steps=1))).home is None
