"""Methods joined: changes add up, and what only one of them can decide is refused with both values."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

import fedrelay as fr
from fedrelay import BadInput, Change, Federation, Sgd, Task
from fedrelay.algorithms import (
    ALGORITHMS,
    fedadam,
    fedavg,
    fedcyclic,
    feddyn,
    fedfusion,
    fedgsp,
    fedprox,
    fedsam,
    fedseq,
    fedseqinter,
    scaffold,
)
from fedrelay.algorithms.feddyn import Dynamic, DynamicMerge
from fedrelay.algorithms.scaffold import Control, ControlMerge
from fedrelay.data import Dirichlet, digits
from fedrelay.engines import Inline
from fedrelay.merges import Adam, Every, Mean, Median
from fedrelay.merges.barriers import first
from fedrelay.models import Mlp
from fedrelay.plans import Ring, Singles, Superclients
from fedrelay.plans.sampling import Usually
from fedrelay.runs.loop import deployed, train
from fedrelay.tasks import OneModel
from fedrelay.types import Baton, Report, Work
from fedrelay.visits import Pooling, Proximal, Sharpness
from fedrelay.visits.private import Private

LOCAL = Sgd(batch=8, lr=0.1)
CHANGES = {name: row.recipe() for name, row in ALGORITHMS.items()}


@pytest.fixture
def engine() -> Inline:
    federation = Federation.split(digits(), Dirichlet(alpha=0.0), 12, 1)
    return Inline(federation, Task.of(Mlp(hidden=(8,)), federation), 1)


def models(algorithm, engine, rounds=2):
    return [deployed(state).params.numpy() for state in train(algorithm, engine, rounds=rounds)]


def test_the_plan_comes_from_one_and_the_training_and_merge_from_the_other():
    both = fr.method(fedseq(max_clients=3), feddyn(alpha=0.3), local=LOCAL)
    assert isinstance(both.plan, Superclients)
    assert both.update == replace(LOCAL, terms=(Dynamic(0.3),))
    assert both.merge == DynamicMerge(0.3)


def test_methods_given_together_are_their_changes_joined():
    change = fedseqinter(max_clients=3, period=4) + feddyn(alpha=0.3)
    both = fr.method(fedseqinter(max_clients=3, period=4), feddyn(alpha=0.3), local=LOCAL)
    assert fr.method(change, local=LOCAL) == both
    assert fedprox() + (scaffold() + fedsam()) == (fedprox() + scaffold()) + fedsam()


def test_the_order_of_the_names_does_not_matter(engine):
    for one, other in ((fedseq(max_clients=3), scaffold()), (fedsam(), feddyn()), (fedprox(mu=1.0), scaffold())):
        found = (models(fr.method(*pair, local=LOCAL, fraction=0.5), engine) for pair in ((one, other), (other, one)))
        for a, b in zip(*found, strict=True):
            assert np.array_equal(a, b)
    assert fedseq() + scaffold() == scaffold() + fedseq()


def test_without_any_change_a_method_is_fedavg_with_everything_by_default():
    plain = fr.method()
    assert plain == fr.method(fedavg())
    assert (plain.update, plain.merge, plain.barrier) == (Sgd(), Mean(), None)
    assert plain.plan == Singles(Usually(0.2))
    assert (plain.pooled, plain.relayed, plain.predictor) == (False, False, None)


@pytest.mark.parametrize("name", [name for name, change in CHANGES.items() if not change.pooled])
def test_joined_to_fedavg_a_method_is_itself(name):
    change, local = CHANGES[name], replace(LOCAL, validation=0.2)  # some look at what they hold out
    assert fedavg() + change == change + fedavg() == change
    alone = fr.method(change, local=local)
    assert fr.method(fedavg(), change, local=local) == alone
    assert fr.method(change, fedavg(), local=local) == alone


def test_groups_of_one_with_a_method_are_the_method_to_the_bit(engine):
    for recipe in (fedprox, scaffold, feddyn, fedadam):
        alone = models(fr.method(recipe(), local=LOCAL, fraction=0.5), engine)
        grouped = fr.method(fedseq(max_clients=1), recipe(), local=LOCAL, fraction=0.5)
        assert all(np.array_equal(a, b) for a, b in zip(alone, models(grouped, engine), strict=True))


def test_a_merge_now_and_then_takes_the_other_merge_inside():
    both = fr.method(fedseqinter(period=4), feddyn(alpha=1.0), local=LOCAL)
    assert both.merge == Every(DynamicMerge(1.0), 4)
    assert fr.method(fedadam(), fedseqinter(period=4), local=LOCAL).merge == Every(Adam(), 4)


@pytest.mark.parametrize("recipe", [feddyn, scaffold, fedadam])
def test_fedseqinter_that_merges_every_round_is_fedseq_with_any_method_to_the_bit(recipe, engine):
    every = fr.method(fedseqinter(max_clients=3, period=1), recipe(), local=LOCAL, fraction=0.5)
    plain = fr.method(fedseq(max_clients=3), recipe(), local=LOCAL, fraction=0.5)
    assert all(np.array_equal(a, b) for a, b in zip(models(every, engine), models(plain, engine), strict=True))


def test_terms_add_up_and_sam_goes_with_them():
    three = fr.method(fedprox(mu=0.5), scaffold(), fedsam(rho=0.1), local=LOCAL)
    assert three.update == replace(LOCAL, terms=(Proximal(0.5), Control(), Sharpness(0.1)))
    assert three.merge == ControlMerge()


def test_the_same_term_twice_counts_once():
    assert (fedprox(mu=0.5) + fedprox(mu=0.5)).terms == (Proximal(0.5),)
    assert fr.method(fedprox(mu=0.5), local=replace(LOCAL, terms=(Proximal(0.5),))).update.terms == (Proximal(0.5),)
    assert (fedprox(mu=0.5) + fedprox(mu=0.2)).terms == (Proximal(0.5), Proximal(0.2))


def test_what_the_user_set_in_local_stays():
    local = replace(LOCAL, terms=(Proximal(0.7),), weight_decay=0.1)
    both = fr.method(fedseq(), feddyn(), local=local)
    assert both.update.terms == (Proximal(0.7), Dynamic())
    assert both.update.weight_decay == 0.1


def test_the_users_fraction_comes_before_that_of_a_method():
    assert fr.method(fedgsp()).plan.fraction == Usually(0.3)
    assert fr.method(fedgsp(), fedprox()).plan.fraction == Usually(0.3)
    assert fr.method(fedgsp(), fraction=0.5).plan.fraction == 0.5
    assert fr.method(fedprox()).plan.fraction == Usually(0.2)


def one_model(state):
    return OneModel(state.batons[0].params)


def nobody(state, outcomes):
    return (), outcomes


def last_model(state):
    return OneModel(state.batons[-1].params)


@dataclass(frozen=True)
class Without:
    """What a method makes of the training, by name."""

    name: str

    def __call__(self, local, /):
        return local


TWO_VALUES = {
    "plan": (Ring(), Singles(), r"who trains after whom, Ring and Singles\(.*\)"),
    "merge": (Mean(), Median(), r"how models are merged, Mean\(\) and Median\(\)"),
    "every": (3, "groups", "how many rounds there are between two merges, 3 and 'groups'"),
    "barrier": (nobody, first, "which chains a merge waits for, nobody and first"),
    "relayed": (True, False, "whether the server passes on what clients send to one another, True and False"),
    "serverless": (True, False, "whether there is a server at all, True and False"),
    "visit": (Without("norm"), Without("head"), "what happens in a visit, .*norm.* and .*head.*"),
    "pooling": (Pooling(3), Pooling(5), r"how many models a visit trains, Pooling\(.*3.*\) and Pooling\(.*5.*\)"),
    "rounds": (1, 2, "how many rounds there usually are, 1 and 2"),
    "predictor": (one_model, last_model, "how the result predicts, one_model and last_model"),
    "private": (
        Private(("norm",)),
        Private(("head",)),
        r"what stays at home, Private\(.*norm.*\) and Private\(.*head.*\)",
    ),
    "fraction": (0.2, 0.5, "the fraction, 0.2 and 0.5"),
}
"""Two values of every part that only one method can decide, and how both are refused together."""


def test_there_are_two_values_for_every_part_of_a_change():
    others = {"terms", "pooled", "local"}  # terms add up, and of trainings the first counts; pooled: below
    assert {*TWO_VALUES, *others} == {field.name for field in fields(Change)}


def test_of_several_methods_the_first_says_how_clients_usually_train_and_the_user_before_all():
    adam, sgd = Change(local=fr.Adam()), Change(local=Sgd(lr=0.3))
    assert fr.method(adam, sgd).update == fr.Adam()
    assert fr.method(sgd, adam).update == Sgd(lr=0.3)
    assert fr.method(fedprox(), adam).update == fr.Adam(terms=(Proximal(),))
    assert fr.method(adam, local=LOCAL).update == LOCAL
    assert fr.method(adam, scaffold()).update == Sgd(terms=(Control(),))  # it reads gradients off the steps of SGD


@pytest.mark.parametrize("part", TWO_VALUES)
def test_two_methods_that_decide_the_same_part_are_refused_and_both_values_named(part):
    one, other, message = TWO_VALUES[part]
    with pytest.raises(BadInput, match=f"both say {message}: only one of them can"):
        Change(**{part: one}) + Change(**{part: other})
    assert getattr(Change(**{part: one}) + Change(**{part: one}), part) == one
    assert getattr(Change() + Change(**{part: other}), part) == other


def test_the_reference_goes_with_nothing_not_even_with_fedavg():
    for other in (fedavg(), fedprox(), CHANGES["centralized"]):
        for pair in ((CHANGES["centralized"], other), (other, CHANGES["centralized"])):
            with pytest.raises(BadInput, match="the reference without federation: it goes together with no other"):
                fr.method(*pair)


def test_two_radii_of_sam_are_refused():
    message = r"two terms decide the radius of SAM, Sharpness\(rho=0.1\) and Sharpness\(rho=0.2\): only one of them can"
    with pytest.raises(BadInput, match=message):
        fedsam(rho=0.1) + fedsam(rho=0.2)


def test_two_ways_to_run_the_model_are_refused():
    with pytest.raises(BadInput, match=r"two terms decide how the model is run, .*conv.* and .*multi.*: only one"):
        fedfusion(operator="conv") + fedfusion(operator="multi")


def test_a_merge_of_the_user_is_refused_where_the_method_has_one():
    with pytest.raises(BadInput, match=r"both say how models are merged, DynamicMerge\(alpha=0.1\) and Median\(\)"):
        fr.method(feddyn(), merge=Median())
    assert fr.method(fedprox(), merge=Median()).merge == Median()


# --- training that is no Training


@dataclass(frozen=True)
class Strange(Work):
    """A Work that is not a Training."""

    def __call__(self, baton, visit, /):
        after = Baton(baton.params + 1, baton.weight + visit.client.size)
        return after, visit.memory, Report(visit.client.id, visit.client.size)


def test_a_work_of_its_own_goes_with_a_plan_and_a_merge_but_not_with_terms(engine):
    joined = fr.method(fedcyclic(), fedadam(), local=Strange(), fraction=0.5)
    assert joined.update == Strange()
    assert joined.plan == fr.method(fedcyclic(), fraction=0.5).plan
    chain = models(fr.method(fedcyclic(), local=Strange(), fraction=0.5), engine, rounds=1)[0]
    np.testing.assert_allclose(chain, engine.task.init(1).numpy() + 6, atol=1e-5)  # half of twelve add one each
    message = r"Strange\(\) trains in a way of its own, so Proximal\(mu=0.01\) cannot be added to it"
    with pytest.raises(BadInput, match=message):
        fr.method(fedprox(), local=Strange())


@pytest.mark.parametrize(
    ("parts", "settings", "message"),
    [
        ((fedseq,), {}, r"a method takes changes, such as fedseq\(max_clients=10\), not fedseq"),
        ((fedprox(), feddyn), {}, "not feddyn"),
        ((Sgd(lr=0.1),), {}, r"a method takes changes.*, not "),
        ((), {"local": Sgd}, r"local must be a training, such as Sgd\(lr=0.1\), not Sgd"),
        ((), {"local": "sgd"}, "local must be a training.* not 'sgd'"),
        ((), {"merge": Median}, r"merge must be a merge, such as Median\(\), not Median"),
        ((), {"merge": "median"}, "merge must be a merge.* not 'median'"),
    ],
)
def test_what_is_no_part_of_a_method_is_refused_with_what_is(parts, settings, message):
    with pytest.raises(BadInput, match=message):
        fr.method(*parts, **settings)


def test_a_change_is_added_to_changes_alone():
    with pytest.raises(TypeError, match="unsupported operand"):
        fedseq() + 3


def test_a_fraction_of_nobody_is_refused_whoever_says_it():
    with pytest.raises(BadInput, match="fraction must be above 0"):
        fr.method(Change(fraction=0.0))


PARTS = [fedavg(), fedprox(), fedprox(mu=0.5), fedsam(), fedsam(rho=0.5), feddyn(), fedseq(), fedseqinter(), fedadam()]


@pytest.mark.parametrize("one", PARTS, ids=range(len(PARTS)))
def test_it_does_not_matter_which_changes_are_added_first(one):
    """Both ways give the same change, or are both refused."""

    def made(join):
        try:
            return join()
        except BadInput:
            return "refused"

    for two in PARTS:
        assert made(lambda: set_of_terms(one + two)) == made(lambda: set_of_terms(two + one))  # noqa: B023
        for three in PARTS:
            assert made(lambda: (one + two) + three) == made(lambda: one + (two + three))  # noqa: B023


def set_of_terms(change):
    """A change whose terms are in no order."""
    return replace(change, terms=()), frozenset(change.terms)
