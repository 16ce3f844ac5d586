from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedrelay import BadInput
from fedrelay.merges import Every, Mean
from fedrelay.merges.colluding import Alie, Colluding, Ipm, Mimic, MinMax, colluding, hidden_deviations, lies, told
from fedrelay.types import ATTACKED, Baton, Chain, Outcome, Report, State

START = torch.tensor([10.0, 20.0, 5.0])
HONEST = torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, 1.0]])


def outcome(change, *, evil=(), clients=(0,)):
    """A chain that has gone this way; the last number of its model is a running statistic."""
    params = START.clone()
    params[:2] += torch.as_tensor(change)
    params[2] = 7.0
    reports = tuple(Report(client, 1, {ATTACKED: 1.0} if client in evil else {}) for client in clients)
    return Outcome(Chain(Baton(START), clients), Baton(params, 1.0), reports)


def among(*, liars=1):
    honest = [outcome(change) for change in HONEST]
    return [*honest, *(outcome([9.0, 9.0], evil=(8,), clients=(3, 8)) for _ in range(liars))]


def lie(collusion, **settings):
    """What the last chain is said to have changed, and its statistic."""
    found = told(among(**settings), collusion, 2)[-1].baton.params
    assert float(found[2]) == 7.0
    return (found - START)[:2]


def test_alie_is_the_mean_less_z_deviations():
    torch.testing.assert_close(lie(Alie(z=1.5)), torch.tensor([3.0 - 1.5 * 2.0, 1.0 - 1.5 * 1.0]))


@pytest.mark.parametrize(
    ("chains", "liars", "z"),
    # Φ⁻¹((n - f - q) / (n - f)), q = floor(n / 2) + 1 - f: by hand and a table of the normal distribution
    [(50, 24, 1.42608), (10, 4, 0.43073), (10, 2, 0.0), (5, 2, 0.43073), (3, 2, 0.0)],
)
def test_alie_hides_behind_as_many_as_a_majority_needs(chains, liars, z):
    assert hidden_deviations(chains, liars) == pytest.approx(z, abs=2e-5)


def test_inner_product_manipulation_turns_the_mean_round():
    torch.testing.assert_close(lie(Ipm(epsilon=0.5)), torch.tensor([-1.5, -0.5]))
    after = Colluding(Mean(), Ipm(epsilon=100.0))(state(), among())
    step = (after.batons[0].params - START)[:2]
    assert float(step @ HONEST.mean(0)) < 0


@pytest.mark.parametrize("direction", ["deviation", "unit", "sign"])
def test_min_max_is_exactly_as_far_from_the_farthest_as_two_honest_ones_are(direction):
    found = lie(MinMax(direction=direction))
    most = torch.pdist(HONEST).max()
    torch.testing.assert_close(torch.linalg.vector_norm(HONEST - found, dim=1).max(), most, atol=1e-4, rtol=0)
    way = {"deviation": [-2.0, -1.0], "unit": [-3.0, -1.0], "sign": [-1.0, -1.0]}[direction]
    ahead = (found - HONEST.mean(0)) / torch.tensor(way)
    torch.testing.assert_close(ahead[0], ahead[1])
    assert ahead[0] > 0


def test_mimic_sends_what_an_outlier_among_the_honest_sends():
    rows = torch.tensor([[0.0, 0.1], [0.1, 0.0], [9.0, 0.0], [0.0, -0.1]])
    assert torch.equal(Mimic().lie(rows, 1), rows[2])


def test_all_liars_send_the_same_and_the_honest_what_they_have():
    found = told(among(liars=2), Ipm(), 2)
    assert torch.equal(found[-1].baton.params, found[-2].baton.params)
    assert all(
        torch.equal(one.baton.params, other.baton.params) for one, other in zip(found[:3], among(), strict=False)
    )


def test_a_chain_lies_if_its_last_client_attacks():
    assert lies(outcome([0.0, 0.0], evil=(8,), clients=(3, 8)))
    assert not lies(outcome([0.0, 0.0], evil=(8,), clients=(8, 3)))


def test_where_nobody_is_honest_everybody_sends_what_it_has():
    liars = among()[3:]
    assert told(liars, Alie(), 2) == liars


def test_strength_is_the_way_from_the_trained_model_to_the_lie():
    torch.testing.assert_close(
        lie(Ipm(epsilon=1.0, strength=0.25)), 0.75 * torch.tensor([9.0, 9.0]) - 0.25 * HONEST.mean(0)
    )
    assert told(among(), Ipm(strength=0.0), 2)[-1].baton.params[:2].tolist() == [19.0, 29.0]


def test_one_honest_chain_has_no_spread_to_hide_in():
    two = [among()[0], among()[-1]]
    for collusion in (Alie(z=3.0), MinMax(), Mimic()):
        torch.testing.assert_close((told(two, collusion, 2)[-1].baton.params - START)[:2], HONEST[0])


def test_what_a_merge_says_of_models_it_says_of_those_that_it_was_sent():
    class Told(Mean):
        def tells(self, state, outcomes, /):
            return {"last": float(outcomes[-1].baton.params[0])}

    assert Colluding(Told(), Ipm(epsilon=1.0)).tells(state(), among()) == {"last": 7.0}


def test_models_that_are_merged_now_and_then_are_lied_about_when_they_are():
    merge = colluding(Every(Mean(), 3), Ipm())
    assert merge == Every(Colluding(Mean(), Ipm()), 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Alie(z=-1.0), "z must be at least 0"),
        (lambda: Ipm(epsilon=0.0), "epsilon must be above 0"),
        (lambda: MinMax(direction="up"), "direction must be deviation, unit or sign"),
        (lambda: Mimic(strength=2.0), "strength must be at least 0 and at most 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, message):
    with pytest.raises(BadInput, match=message):
        make()


def state():
    return replace(State(0, (Baton(START),), {}, {}, {}), trainable=2)
