from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fedrelay import BadInput, seeds
from fedrelay.plans import Few, InGroups, Named, Neighbours, Position, Spread
from fedrelay.types import Baton, Chain

GROUPS = [tuple(range(start, start + 10)) for start in range(0, 100, 10)]
ALONE = [(client,) for client in range(100)]


def rng():
    return seeds.rng(3, "test")


def chains(*lengths):
    starts = np.cumsum([0, *lengths])
    return [Chain(Baton(None), tuple(range(start, stop))) for start, stop in pairwise(starts)]


@pytest.mark.parametrize(
    ("of_groups", "of_clients", "groups", "each"), [(0.1, 0.1, 1, 1), (0.3, 0.5, 3, 5), (0.5, 0.1, 5, 1)]
)
def test_shares_of_groups_and_of_the_clients_in_them_are_those_of_the_journal(of_groups, of_clients, groups, each):
    drawn = InGroups(of_groups, of_clients).drawn(GROUPS, rng())
    counts = [len(set(group) & set(drawn)) for group in GROUPS]
    assert sorted(counts) == [0] * (10 - groups) + [each] * groups


def test_where_clients_are_alone_the_product_of_the_shares_attacks():
    """FedAvg gets L_S times L of all clients."""
    assert len(InGroups(0.3, 0.5).drawn(ALONE, rng())) == 15
    assert len(InGroups(0.1, 0.1).drawn(ALONE, rng())) == 1


def test_a_malicious_group_has_an_attacker_however_small_it_is():
    """max(1, floor(share n)), as in the published code: a tenth of nine clients is one of them."""
    groups = [tuple(range(9)), tuple(range(9, 20))]
    assert len(InGroups(1.0, 0.1).drawn(groups, rng())) == 2


def test_the_same_seed_draws_the_same_attackers_and_another_one_others():
    one, again, other = (Spread(0.2).drawn(ALONE, seeds.rng(seed, "attack", "who")) for seed in (0, 0, 1))
    assert one == again != other
    assert len(one) == 20 == len(set(one))


def test_a_few_attackers_are_as_many_as_are_asked_for_and_no_more_than_there_are():
    assert len(set(Few(3).drawn(GROUPS, rng()))) == 3
    assert len(Few().drawn(ALONE, rng())) == 1
    with pytest.raises(BadInput, match="count, of 100 clients, must be at most 100, not 101"):
        Few(101).drawn(GROUPS, rng())


def test_attackers_spread_at_random_are_in_chains_as_often_as_the_formula_says():
    """1 - (1 - f)^n: 65 % of chains of 10 at a tenth of the clients, in the mean over many draws."""
    many = [tuple(range(start, start + 10)) for start in range(0, 10_000, 10)]
    hit = set(Spread(0.1).drawn(many, rng()))
    share = np.mean([bool(hit & set(group)) for group in many])
    assert abs(share - (1 - 0.9**10)) < 0.05


def test_a_share_that_rounds_to_nobody_is_refused_with_what_makes_one():
    with pytest.raises(BadInput, match=r"share = 0.1 of 8 is 0.8, which makes no attacker: 0.125 makes one"):
        Spread(0.1).check(8)
    with pytest.raises(BadInput, match=r"groups = 0.1 of 2 is 0.2, which makes no malicious group: 0.5 makes one"):
        InGroups(0.1, 0.5).drawn(GROUPS[:2], rng())
    with pytest.raises(BadInput, match=r"groups times clients = 0.01 of 30 is 0.3.* 0.0334 makes one"):
        InGroups(0.1, 0.1).drawn(ALONE[:30], rng())
    assert len(Spread(0.0334).drawn(ALONE[:30], rng())) == 1
    assert len(Spread(0.3).drawn(ALONE[:10], rng())) == 3  # though 0.3 * 10 may be less than 3 in floating point


def test_clients_that_do_not_exist_are_refused():
    with pytest.raises(BadInput, match="there is no client 12 to attack: there are clients 0 to 9"):
        Named((3, 12)).check(10)
    with pytest.raises(BadInput, match="names nobody"):
        Named(())
    with pytest.raises(BadInput, match="names somebody twice"):
        Named((1, 1))


def test_clients_that_attack_do_so_wherever_they_stand():
    lapped = [Chain(Baton(None), (4, 2, 7, 4, 2, 7)), Chain(Baton(None), (1, 3))]
    assert Named((2, 3)).hops(lapped, (2, 3), rng()) == [(1, 4), (1,)]


def test_a_position_counts_from_the_beginning_or_from_the_end():
    assert Position(0).hops(chains(3, 5), (), rng()) == [(0,), (0,)]
    assert Position(-1).hops(chains(3, 5), (), rng()) == [(2,), (4,)]
    assert Position(-4).hops(chains(3, 5), (), rng()) == [(), (1,)]
    assert Position(3).hops(chains(3, 5), (), rng()) == [(), (3,)]


def test_a_position_in_some_chains_is_in_so_many():
    places = Position(-1, chains=2).hops(chains(2, 2, 2, 2, 1), (), rng())
    assert sum(map(len, places)) == 2


def test_neighbours_follow_one_another():
    for seed in range(20):
        ((*hops,),) = Neighbours(count=3).hops(chains(6), (), seeds.rng(seed, "test"))
        assert hops == list(range(hops[0], hops[0] + 3))
        assert 0 <= hops[0] <= hops[-1] < 6
    assert Neighbours(count=2, position=-1).hops(chains(4, 1), (), rng()) == [(2, 3), ()]
