"""What an attacker that makes images keeps from visit to visit, and what it is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from fedrelay import BadInput, Federation, Sgd, Task, seeds
from fedrelay.data import Dirichlet, Examples, Iid, Normalise, Source, diabetes, digits
from fedrelay.models import Logistic, Mlp, SmallCnn
from fedrelay.tasks import Workspaces
from fedrelay.types import Baton, Visit, Work
from fedrelay.visits.attacks import Attacked, Recovery
from fedrelay.visits.attacks.attack import SPIED
from fedrelay.visits.attacks.recovery import pictures_in, stretched

TINY = {"epochs": 1, "width": 1, "images": 5, "batch": 8}
HONEST = Sgd(batch=8, lr=0.1)


@pytest.fixture(scope="module")
def visit():
    whole = Federation.split(digits(), Dirichlet(alpha=100.0), 60, 0)
    federation = Federation.of(whole.source, [whole.client(number).rows.numpy()[:20] for number in range(3)])
    task = Task.of(SmallCnn((2,)), federation)
    return Visit(federation.client(1), task, {}, {}, 1, 0, 5, Workspaces(task))


def visited(visit, attack, memory=None, **changes):
    """The memory after a visit, in which everything else is the honest one's."""
    visit = replace(visit, memory=memory or {}, **changes)
    baton = Baton(visit.task.init(0))
    after, memory, _ = Attacked(HONEST, attack, frozenset([(1, 0)]))(baton, visit)
    honest, kept, _ = HONEST(baton, replace(visit, memory={}))
    assert torch.equal(after.params, honest.params)
    assert {key: value for key, value in memory.items() if key != SPIED} == kept
    return memory


def test_the_generator_goes_on_where_it_was_and_images_come_from_the_same_noise(visit):
    attack = Recovery(every=1, **TINY)
    first = visited(visit, attack)
    second = visited(visit, attack, first, round=2)
    anew = visited(visit, attack, round=2)
    one, two, other = (memory[SPIED]["generators"]["received"] for memory in (first, second, anew))
    assert not torch.equal(one, two)
    assert not torch.equal(two, other)
    assert (two - one).abs().max() < 3 * 3 * 2e-4  # three steps of Adam, none much longer than its rate
    images = [pictures_in(memory)[1]["received"].float() for memory in (first, second)]
    assert images[0].shape == (5, 1, 8, 8)
    assert not torch.equal(*images)
    assert (images[0] - images[1]).abs().mean() < 10  # other noise would give other images altogether


def test_images_are_made_at_the_first_visit_and_when_enough_rounds_have_passed(visit):
    attack, memory, rounds = Recovery(every=5, **TINY), {}, []
    for round in (3, 4, 7, 8, 12, 13):
        memory = visited(visit, attack, memory, round=round)
        rounds.append(pictures_in(memory)[0])
    assert rounds == [3, 3, 3, 8, 8, 13]


def test_an_honest_visit_in_between_leaves_what_an_attacker_knows(visit):
    known = visited(visit, Recovery(**TINY))
    _, memory, report = Attacked(HONEST, Recovery(**TINY), frozenset([(1, 7)]))(
        Baton(visit.task.init(0)), replace(visit, memory=known, round=2)
    )
    assert memory[SPIED] is known[SPIED]
    assert not report.uplink


def test_discriminators_differ_in_the_model_alone(visit):
    random = visit.task.init(seeds.derive(5, "recovery", "random", 1, 1))
    attack = Recovery(discriminators=("received", "random"), **TINY)
    known = attack.spied(Baton(random), visit, {}, HONEST)
    assert torch.equal(known["generators"]["received"], known["generators"]["random"])
    other = attack.spied(Baton(visit.task.init(0)), visit, {}, HONEST)
    assert not torch.equal(other["generators"]["received"], other["generators"]["random"])


def test_the_model_of_its_own_is_trained_on_the_attackers_examples_alone(visit):
    attack = Recovery(discriminators=("own",), **TINY)
    alone, _, _ = HONEST(Baton(visit.task.init(5)), visit)  # from the model that the run with the seed 5 begins with
    known = attack.spied(Baton(visit.task.init(0)), visit, {}, HONEST)
    assert torch.equal(known["own"], alone.params)
    later = replace(visit, round=2)
    again, _, _ = HONEST(alone, later)
    assert torch.equal(attack.spied(Baton(visit.task.init(0)), later, known, HONEST)["own"], again.params)


def test_an_attacker_with_one_image_makes_none_and_trains_as_always(visit):
    alone = replace(visit, client=replace(visit.client, rows=visit.client.rows[:1]))
    assert SPIED not in visited(alone, Recovery(**TINY))


def test_stretched_images_go_from_black_to_white_each_on_its_own():
    images = torch.tensor([[[[-0.5, 0.5]]], [[[2.0, 2.0]]], [[[0.0, 3.0]]]])
    assert stretched(images).flatten(1).tolist() == [[0, 255], [0, 0], [0, 255]]


def test_pixels_go_from_black_to_white_as_the_data_are_normalised():
    x = torch.zeros(4, 2, 2, 1, dtype=torch.uint8)
    store = Examples(x, torch.zeros(4, dtype=torch.int64), Normalise((0.25,), (0.5,)))
    federation = Federation.of(Source("grey", store, store, classes=2), [torch.arange(4).numpy()])
    task = Task.of(Logistic(), federation)
    ends = Recovery(output="pixels").as_taken(task)(torch.tensor([-1.0, 1.0])[:, None, None, None].expand(2, 1, 2, 2))
    torch.testing.assert_close(ends[:, 0, 0, 0], torch.tensor([-0.25, 0.75]) / 0.5)
    same = torch.tensor([[[[-0.3]]]])
    assert Recovery().as_taken(task)(same) is same


def test_data_without_images_are_refused_in_one_line():
    table = Federation.split(diabetes(), Iid(), 4, 0)
    with pytest.raises(BadInput, match=r"recovery makes images \(channels, height, width\), and inputs here have") as e:
        Recovery().fitted(Task.of(Mlp(hidden=(4,)), table))
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"discriminators": ("received", "mine")}, "some of received, random, own, each once"),
        ({"discriminators": ()}, "some of received, random, own"),
        ({"discriminators": ("own", "own")}, "each once"),
        ({"output": "grey"}, "output must be tanh or pixels, not 'grey'"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"batch": 1}, "batch must be at least 2"),
        ({"images": 1}, "images must be at least 2"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, words):
    with pytest.raises(BadInput, match=words):
        Recovery(**settings)


@dataclass(frozen=True)
class Strange(Work):
    """No training that we know."""

    def __call__(self, baton, visit, /):
        raise AssertionError


def test_a_model_of_its_own_needs_a_training_that_is_known():
    Attacked(Strange(), Recovery(), frozenset())
    with pytest.raises(BadInput, match='Strange trains in a way of its own: recovery cannot have the control "own"'):
        Attacked(Strange(), Recovery(discriminators=("own",)), frozenset())
