"""How the result of a run predicts: one model, several that vote, or one for every client."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import fedrelay as fr
from fedrelay import BadInput, Change, Federation, Task, deployed, evaluate, start
from fedrelay.data import Iid, digits
from fedrelay.data.federation import Examples
from fedrelay.engines import Inline
from fedrelay.models import Logistic, Mlp, Quadratic
from fedrelay.tasks import Ensemble, OneModel, PerClient, Workspaces
from fedrelay.types import Baton

TASK = Task(Logistic(), (2,), 2)


def model(first: tuple[float, float], second: tuple[float, float]) -> torch.Tensor:
    """A model that gives these probabilities to the two classes: for the input (1, 0), and for (0, 1)."""
    params = torch.zeros(TASK.layout.size)
    weight = next(piece for piece in TASK.layout.pieces(params).values() if piece.shape == (2, 2))
    weight.copy_(torch.tensor([first, second]).log().T)
    return params


ONE, OTHER = model((0.9, 0.1), (0.2, 0.8)), model((0.4, 0.6), (0.3, 0.7))
BOTH = Examples(torch.eye(2), torch.tensor([0, 0]))  # two inputs, both of class 0


def figures(*right: float) -> dict[str, float]:
    """Loss and accuracy, where the right class (of two) has these probabilities."""
    loss = -sum(math.log(share) for share in right) / len(right)
    return {"loss": loss, "accuracy": sum(share > 0.5 for share in right) / len(right)}


def found(predictor, examples=BOTH, **settings) -> dict[str, float]:
    return evaluate(predictor, examples, Workspaces(TASK), **settings)


def chances(predictor) -> list[list[float]]:
    return predictor.outputs(Workspaces(TASK))(torch.eye(2)).detach().softmax(-1).tolist()


def test_one_model_predicts_as_it_is():
    assert found(OneModel(ONE)) == pytest.approx(figures(0.9, 0.2))
    assert found(OneModel(OTHER)) == pytest.approx(figures(0.4, 0.3))
    assert found(ONE) == found(OneModel(ONE))  # a vector alone will do
    predictor = OneModel(ONE)
    assert predictor.for_client(3) is predictor
    assert [vector is ONE for vector in predictor.vectors] == [True]


def test_models_vote_by_the_mean_of_their_probabilities():
    """(0.9 + 0.4) / 2 = 0.65 and (0.2 + 0.3) / 2 = 0.25."""
    vote = Ensemble((ONE, OTHER))
    assert found(vote) == pytest.approx(figures(0.65, 0.25), rel=1e-5)
    assert chances(vote) == [pytest.approx([0.65, 0.35], rel=1e-5), pytest.approx([0.25, 0.75], rel=1e-5)]
    assert [vector is model for vector, model in zip(vote.vectors, (ONE, OTHER), strict=True)] == [True, True]
    assert vote.for_client(1) is vote


def test_shares_weight_the_votes():
    """A quarter of 0.9 and three quarters of 0.4 are 0.525; a quarter of 0.2 and three quarters of 0.3 are 0.275."""
    for shares in ((1.0, 3.0), (0.25, 0.75)):
        assert found(Ensemble((ONE, OTHER), shares)) == pytest.approx(figures(0.525, 0.275), rel=1e-5)
    assert found(Ensemble((ONE, OTHER), (0.0, 2.0))) == pytest.approx(figures(0.4, 0.3), rel=1e-5)


def test_a_vote_of_one_or_of_equals_is_the_model_itself():
    for models in ((ONE,), (ONE, ONE, ONE)):
        assert found(Ensemble(models)) == pytest.approx(found(ONE), rel=1e-5)


def test_a_vote_of_models_that_are_sure_of_the_wrong_class_has_a_finite_loss():
    """Class 0 gets e^-300, which no float32 holds: the loss of both models, and so of their vote, is 300."""
    sure = torch.zeros(TASK.layout.size)
    next(piece for piece in TASK.layout.pieces(sure).values() if piece.shape == (2, 2))[1] = 300.0
    assert found(Ensemble((sure, sure))) == pytest.approx({"loss": 300.0, "accuracy": 0.0}, rel=1e-5)


def test_a_vote_is_the_same_however_many_examples_are_looked_at_at_once():
    three = Examples(torch.eye(2)[[0, 1, 0]], torch.tensor([0, 0, 1]))
    for batch in (1, 2, 3):
        assert found(Ensemble((ONE, OTHER)), three, batch=batch) == pytest.approx(figures(0.65, 0.25, 0.35), rel=1e-5)


@pytest.mark.parametrize(
    "shares", [(1.0,), (1.0, 1.0, 1.0), (), (1.0, -1.0), (0.0, 0.0), (1.0, math.nan), (1.0, math.inf)]
)
def test_shares_that_make_no_vote_are_refused(shares):
    with pytest.raises(BadInput, match=r"2 models vote, but the shares are \(.*\): give each one from 0"):
        Ensemble((ONE, OTHER), shares)


def test_nobody_cannot_vote():
    with pytest.raises(BadInput, match="an ensemble needs at least one model"):
        Ensemble(())


def test_models_without_classes_cannot_vote():
    task = Task(Quadratic(), (2,), 1)
    with pytest.raises(BadInput, match=r"models vote on classes, and Quadratic.* tells none apart"):
        Ensemble((torch.zeros(1),)).outputs(Workspaces(task))


def test_every_client_may_have_a_model_of_its_own():
    predictor = PerClient(common=ONE, own={7: OTHER, 2: ONE})
    assert found(predictor.for_client(7)) == pytest.approx(figures(0.4, 0.3))
    assert found(predictor.for_client(2)) == pytest.approx(figures(0.9, 0.2))
    assert found(predictor.for_client(5)) == pytest.approx(figures(0.9, 0.2))  # who has none
    assert found(predictor) == pytest.approx(figures(0.9, 0.2))  # the central test set
    assert [vector is model for vector, model in zip(predictor.vectors, (ONE, ONE, OTHER), strict=True)] == [True] * 3


def test_there_must_be_something_to_evaluate_on():
    with pytest.raises(BadInput, match="there are no examples to evaluate on"):
        found(ONE, Examples(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)))


@pytest.fixture(scope="module")
def engine() -> Inline:
    federation = Federation.split(digits(), Iid(), 4)
    return Inline(federation, Task.of(Mlp(hidden=(4,)), federation))


def test_several_batons_are_used_as_their_mean_unless_the_method_says_otherwise(engine):
    def voting(state):
        return Ensemble(tuple(baton.params for baton in state.batons))

    plain, vote = fr.method(), fr.method(Change(predictor=voting))
    batons = Baton(torch.tensor([0.0, 3.0]), 1.0), Baton(torch.tensor([3.0, 6.0]), 2.0)
    state = replace(start(plain, engine), batons=batons)
    for algorithm in (None, plain):
        used = deployed(state, algorithm)
        assert isinstance(used, OneModel)
        assert used.params.tolist() == [2.0, 5.0]  # one third of the first, two thirds of the second
    used = deployed(state, vote)
    assert isinstance(used, Ensemble)
    assert [vector.tolist() for vector in used.vectors] == [[0.0, 3.0], [3.0, 6.0]]


def test_two_methods_cannot_both_say_how_the_result_predicts():
    def one(state):
        return OneModel(state.batons[0].params)

    def other(state):
        return PerClient(state.batons[0].params, {})

    with pytest.raises(BadInput, match="both say how the result predicts, one and other: only one of them can"):
        fr.method(Change(predictor=one), Change(predictor=other))
