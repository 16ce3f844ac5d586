"""The virtual clock: how long chains take, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedrelay import BadInput
from fedrelay.merges.barriers import first
from fedrelay.runs.latency import BYTES, Between, Given, Latency, Load, LogNormal, Same, Tiers
from fedrelay.types import Baton, Chain, Drop, Outcome, Report, State

RNG = np.random.default_rng
BATON = Baton(torch.zeros(250))  # 1000 bytes
LOAD = Load(1000)


def paced(speeds=(10.0, 20.0, 40.0), mbits=(0.008, 0.016, 0.032), **more):
    """Three clients that compute 10, 20 and 40 examples and move 1000, 2000 and 4000 bytes a second."""
    return Latency(Given(speeds), Given(mbits), **more).draw(3, seed=0)


def outcome(clients=(0, 1, 2), *, examples=20, lost=(), slot=0, at=0.0) -> Outcome:
    reports = tuple(Report(client, examples) for hop, client in enumerate(clients) if hop not in lost)
    drops = tuple(Drop(clients[hop], hop, "") for hop in lost)
    return Outcome(Chain(BATON, tuple(clients), slot), BATON, reports, drops, at)


def test_a_chain_takes_its_transfers_and_its_training_one_after_another():
    # down to 0: 1 s; 0 trains 2 s; 0 to 1 at the slower of the two: 1 s; 1 trains 1 s; 1 to 2: 0.5 s; 2 trains 0.5 s;
    # up from 2: 0.25 s
    assert paced().finish(outcome(), LOAD, 1) == pytest.approx(1 + 2 + 1 + 1 + 0.5 + 0.5 + 0.25)
    assert paced().finish(outcome(), LOAD, 1, began=100.0) == pytest.approx(106.25)


def test_what_the_server_relays_goes_up_and_down():
    # between 0 and 1: 1 s up and 0.5 s down instead of 1 s; between 1 and 2: 0.5 + 0.25 instead of 0.5
    assert paced().finish(outcome(), replace(LOAD, relayed=True), 1) == pytest.approx(6.25 + 0.5 + 0.25)


def test_what_travels_besides_the_baton_takes_time_too():
    told = replace(outcome((0,)), reports=(Report(0, 20, uplink={"change": torch.zeros(500)}),))
    assert paced().finish(told, replace(LOAD, shared=3000), 1) == pytest.approx(3 + 1 + 2 + 2 + 1)


def test_every_message_has_its_delay():
    assert paced(delay=10.0).finish(outcome(), LOAD, 1) == pytest.approx(6.25 + 4 * 10)


def test_a_dropped_client_costs_the_message_that_reached_it():
    # down to 0 in vain: 1 s; down to 1: 0.5 s; 1 trains 1 s; up 0.5 s
    assert paced().finish(outcome((0, 1), lost=(0,)), LOAD, 1) == pytest.approx(1 + 0.5 + 1 + 0.5)
    assert paced().finish(outcome((0, 1), lost=(0, 1)), LOAD, 1) == pytest.approx(1.5)


def test_a_client_that_goes_on_with_its_own_baton_sends_nothing():
    assert paced().finish(outcome((1, 1)), LOAD, 1) == pytest.approx(0.5 + 1 + 1 + 0.5)


def test_a_client_that_is_away_is_waited_for_as_often_and_as_long_as_said():
    pace = Latency(Same(1.0), Same(1.0), Same(0.75), away=8.0).draw(2, seed=1)
    waits = np.array([pace.absence(client, round, 0) for client in (0, 1) for round in range(4000)])
    assert (waits == 0).mean() == pytest.approx(0.75, abs=0.02)  # four standard errors
    assert waits[waits > 0].mean() == pytest.approx(8.0, abs=0.75)
    assert pace.absence(1, 17, 2) == pace.absence(1, 17, 2)


def test_times_depend_on_the_seed_and_on_nothing_else():
    latency = Latency(availability=Same(0.5))
    one, again, other = latency.draw(50, 3), Latency(availability=Same(0.5)).draw(50, 3), latency.draw(50, 4)
    assert np.array_equal(one.speed, again.speed)
    assert not np.array_equal(one.speed, other.speed)
    assert not np.array_equal(one.speed / one.speed.mean(), one.bandwidth / one.bandwidth.mean())


@pytest.mark.parametrize(
    ("distribution", "low", "middle", "high"),
    [
        (Same(3.0), 3, 3, 3),
        (Between(2.0, 6.0), 2, 4, 6),
        (LogNormal(5.0, 0.5), 0, 5, math.inf),
        (Tiers((1.0, 9.0), (1.0, 3.0)), 1, 9, 9),
    ],
)
def test_distributions_have_the_range_and_the_median_they_promise(distribution, low, middle, high):
    drawn = distribution(20_000, RNG(0))
    assert low <= drawn.min()
    assert drawn.max() <= high
    assert np.median(drawn) == pytest.approx(middle, rel=0.03)


def test_tiers_come_in_their_shares_and_the_spread_of_lognormal_is_sigma():
    assert (Tiers((1.0, 9.0), (1.0, 3.0))(20_000, RNG(0)) == 9).mean() == pytest.approx(0.75, abs=0.015)
    assert np.log(LogNormal(5.0, 0.5)(20_000, RNG(0))).std() == pytest.approx(0.5, abs=0.01)


def test_bandwidth_is_in_megabits():
    assert Latency(bandwidth=Same(8.0)).draw(1, 0).bandwidth.tolist() == [1e6]
    assert BYTES == 125_000


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Same(0.0), "value must be above 0"),
        (lambda: Between(3.0, 2.0), "high must be at least 3"),
        (lambda: LogNormal(1.0, -1.0), "sigma must be at least 0"),
        (lambda: Tiers(()), "values must not be empty"),
        (lambda: Tiers((1.0, 2.0), (1.0,)), "2 values but 1 shares"),
        (lambda: Given((1.0, -1.0)), "every one of values must be above 0"),
        (lambda: Latency(away=-1.0), "away must be at least 0"),
        (lambda: Latency(speed=Given((1.0, 2.0))).draw(3, 0), "latency.speed: 2 values are given for 3 clients"),
        (lambda: Latency(availability=Same(1.5)).draw(3, 0), "at most 1, not 1.5"),
    ],
)
def test_a_latency_that_cannot_be_is_refused(make, message):
    with pytest.raises(BadInput, match=message):
        make()


def state(waiting=(), clock=0.0) -> State:
    return State(0, (BATON,), {}, {}, {}, waiting=tuple(waiting), clock=clock)


def test_the_first_chain_is_taken_with_those_that_finish_at_the_same_moment():
    slow, early, late = outcome(slot=0, at=9.0), outcome(slot=2, at=4.0), outcome(slot=1, at=4.0 + 1e-12)
    ready, waiting = first(state([slow]), [early, late])
    assert [one.chain.slot for one in ready] == [1, 2]  # in the order of slots, whenever they began
    assert list(waiting) == [slow]


def test_without_a_clock_all_chains_finish_together():
    outcomes = [outcome(slot=slot) for slot in range(3)]
    assert first(state(), outcomes) == (outcomes, [])


def test_the_chains_of_a_round_begin_when_it_does():
    timed = paced().timed([outcome((0,)), outcome((2,))], state(clock=50.0), relayed=False)
    assert [one.finished_at for one in timed] == pytest.approx([50 + 1 + 2 + 1, 50 + 0.25 + 0.5 + 0.25])
