from __future__ import annotations

import numpy as np
import pytest
import torch

from fedrelay.merges import Mean
from fedrelay.plans.chains import in_order
from fedrelay.plans.grouping.groups import Limits, distribute
from fedrelay.plans.sampling import Usually, share, taking_part
from fedrelay.types import Baton, Chain, Outcome, Report, State


@pytest.mark.parametrize(("reshuffle", "orders"), [(False, 1), (True, 3)])
def test_every_lap_visits_everybody_in_one_order_or_in_an_order_of_its_own(reshuffle, orders):
    # FedSeq 2022, Alg. 1 shuffles in line 7, before the laps of line 9; the published code does in every lap
    hops = in_order(range(8), 3, np.random.default_rng(0), reshuffle=reshuffle)
    laps = [hops[:8], hops[8:16], hops[16:]]
    assert all(sorted(lap) == list(range(8)) for lap in laps)
    assert len({tuple(lap) for lap in laps}) == orders


@pytest.mark.parametrize(
    ("fraction", "total", "count"),
    [(0.2, 62, 12), (0.29, 100, 29), (0.1, 5, 1), (1.0, 7, 7), (0.7, 10, 7), (0.99, 10, 9)],
)
def test_the_number_that_takes_part_is_rounded_down_and_at_least_one(fraction, total, count):
    assert share(fraction, total) == count


def test_left_over_clients_go_to_the_smallest_group_that_has_room():
    sizes = [5, 5, 1, 1, 3, 9]
    # group 1 holds least but is full; then group 0 has room for one; the last stays alone
    assert distribute([[0], [2, 3]], [4, 5, 1], sizes, Limits(max_clients=2)) == [[0, 4], [2, 3], [5, 1]]


def test_a_weight_given_by_the_plan_overrides_the_examples():
    def outcome(value: float, weight: float | None) -> Outcome:
        chain = Chain(Baton(torch.zeros(1)), (0,), weight=weight)
        return Outcome(chain, Baton(torch.tensor([value]), weight=30.0), (Report(0, 1),))

    state = State(0, (Baton(torch.zeros(1)),), {}, {}, {})
    merged = Mean()(state, [outcome(1.0, 0.75), outcome(5.0, 0.25)])
    assert merged.batons[0].params.item() == 2.0
    merged = Mean()(state, [outcome(1.0, None), outcome(5.0, None)])
    assert merged.batons[0].params.item() == 3.0


@pytest.mark.parametrize(
    ("clients", "expected"),
    [(1, 1), (20, 20), (21, 4), (100, 20)],
)
def test_without_a_fraction_everybody_takes_part_where_clients_are_few(clients, expected):
    singles_of_all = tuple((client,) for client in range(clients))
    assert taking_part(Usually(), singles_of_all) == expected
    assert taking_part(0.2, singles_of_all) == max(clients // 5, 1)


def test_it_is_clients_that_are_few_and_not_groups():
    pairs = tuple((client, client + 1) for client in range(0, 30, 2))
    assert taking_part(Usually(), pairs) == 3  # a fifth of 15
    assert taking_part(Usually(), pairs[:10]) == 10
