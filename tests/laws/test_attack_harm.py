"""Every attack does harm where it should: among honest clients that learn the digits well."""

from __future__ import annotations

from functools import cache

import pytest

import fedrelay as fr
from fedrelay.algorithms import fedseq
from fedrelay.data import Dirichlet, digits
from fedrelay.engines import Inline
from fedrelay.merges.colluding import Alie, Ipm, Mimic, MinMax
from fedrelay.models import Mlp
from fedrelay.plans import Position, Spread
from fedrelay.runs import Threat, When, threatened
from fedrelay.tasks import Workspaces
from fedrelay.visits.attacks import Backdoor, Labels, Lazy, Noise, Replacement, Scaled, SignFlip

ROUNDS = 6
LOCAL = fr.Sgd(batch=8, lr=0.2)


@cache
def engine(alpha=100.0):
    federation = fr.Federation.split(digits(), Dirichlet(alpha=alpha), 10, 0)
    return Inline(federation, fr.Task.of(Mlp(hidden=(16,)), federation), 0)


def algorithm(chain):
    return fr.method(*([fedseq(max_clients=chain)] if chain > 1 else []), local=LOCAL, fraction=1.0)


@cache
def figures(how=None, when=When(), *, watching=None, chain=1, alpha=100.0):
    """What the last model is worth, with what `watching` looks at."""
    place = engine(alpha)
    method = algorithm(chain) if how is None else threatened(algorithm(chain), how, when)
    *_, state = fr.train(method, place, rounds=ROUNDS)
    test, workspaces = place.federation.test, Workspaces(place.task)
    seen = {} if watching is None else Threat(watching).fitted(place.task).figures(fr.deployed(state), test, workspaces)
    return fr.evaluate(fr.deployed(state), test, workspaces) | seen


def lost(how, when=When(Spread(0.4)), **settings):
    """How much accuracy an attack takes."""
    return figures(**settings)["accuracy"] - figures(how, when, **settings)["accuracy"]


def test_flipped_labels_spoil_their_classes_and_leave_the_others():
    """Among a majority of attackers 3 and 5 are learned the wrong way round; a fifth of the test examples is theirs."""
    swapped = Labels(classes=((3, 5),))
    honest, found = (figures(how, When(Spread(0.6)), watching=swapped) for how in (None, swapped))
    assert honest["attacked_accuracy"] > 0.9
    assert found["attacked_accuracy"] < 0.2
    others = [(one["accuracy"] - 0.2 * one["attacked_accuracy"]) / 0.8 for one in (honest, found)]
    assert abs(others[0] - others[1]) < 0.1


def test_a_backdoor_opens_while_the_model_stays_as_good():
    trigger = Backdoor(target=7, size=2)
    honest, found = (figures(how, When(Spread(0.4)), watching=trigger) for how in (None, trigger))
    assert honest["backdoor_success"] < 0.05
    assert found["backdoor_success"] > 0.7
    assert honest["accuracy"] - found["accuracy"] < 0.05


def test_a_replacement_opens_the_backdoor_in_one_round_which_without_a_boost_it_does_not():
    """One client of ten, in the last round alone."""
    once, trigger = When(Spread(0.1), first_round=ROUNDS), Backdoor(target=7, size=2, strength=0.5)
    assert figures(Replacement(by=trigger), once, watching=trigger)["backdoor_success"] > 0.9
    assert figures(trigger, once, watching=trigger)["backdoor_success"] < 0.1


@pytest.mark.parametrize(
    ("how", "least"),
    [
        (Noise(deviation=1.0), 0.1),
        (SignFlip(scale=3.0), 0.4),
        (Scaled(scale=30.0), 0.4),
        (Ipm(epsilon=3.0), 0.4),  # 0.4 times 3 is more than 0.6: the mean goes the other way
        (Alie(z=4.0), 0.05),
    ],
)
def test_four_of_ten_clients_spoil_a_mean(how, least):
    assert lost(how) > least


@pytest.mark.parametrize("how", [MinMax(), MinMax(direction="unit"), Mimic()])
def test_lies_among_honest_models_do_harm_where_clients_are_unlike(how):
    """Where honest changes are far from one another there is room for lies, and one client's is not everybody's."""
    assert lost(how, alpha=0.1) > 0.1


def test_free_riders_slow_down_those_who_work():
    assert lost(Lazy(), When(Spread(0.9))) > 0.2


def test_inside_a_chain_one_attacker_of_five_is_enough():
    """It stands in every chain, at its end: a mean over chains has no honest one left."""
    assert lost(SignFlip(scale=3.0), When(Position(-1)), chain=5) > 0.1
