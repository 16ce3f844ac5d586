from __future__ import annotations

import pytest
import torch

from fedrelay import BadInput, Federation, Sgd, Task, seeds
from fedrelay.data import Dirichlet, Examples, digits
from fedrelay.data.federation import ClientData
from fedrelay.models import Mlp
from fedrelay.tasks import Workspaces
from fedrelay.types import ATTACKED, Baton, Visit
from fedrelay.visits.attacks import Attacked, Backdoor, Labels, Lazy, Noise, Replacement, Scaled, Sending, SignFlip
from fedrelay.visits.attacks.labels import NAMED, SUPERCLASSES

RANDOM = Labels(classes=((0, 2, 3, 5),), pairing="random")
CLASSES = torch.arange(10).repeat(20)
IMAGES = torch.rand(200, 6, 6, 3, generator=torch.Generator().manual_seed(0))


def client(y=CLASSES):
    return ClientData(4, Examples(IMAGES, y), torch.arange(200).flip(0))


def task(classes=10, shape=(3, 6, 6), target="classes"):
    return Task(Mlp(hidden=(4,)), shape, classes, target=target)


def learned(attack, rng=0):
    """The true classes of the client's examples, and those it learns."""
    poisoned = attack.poisoned(client(), seeds.rng(rng, "test"))
    return client().take(torch.arange(200), None)[1], poisoned.take(torch.arange(200), None)[1]


# --- labels


def test_flipped_labels_are_swapped_both_ways_and_all_others_stay():
    true, found = learned(Labels(classes=((0, 2), (3, 5))))
    swap = {0: 2, 2: 0, 3: 5, 5: 3}
    assert found.tolist() == [swap.get(label, label) for label in true.tolist()]


def test_mirrored_labels_are_the_last_for_the_first():
    true, found = learned(Labels().fitted(task()))
    assert torch.equal(found, 9 - true)


def test_images_and_their_order_stay_as_they_are():
    poisoned = Labels(classes=((0, 2),)).poisoned(client(), seeds.rng(0))
    rows = torch.tensor([5, 0, 7])
    assert torch.equal(poisoned.take(rows, None)[0], client().take(rows, None)[0])
    assert poisoned.size == 200
    assert poisoned.id == 4


def test_strength_is_the_share_of_labels_that_are_swapped():
    true, found = learned(Labels(classes=((0, 2, 3, 5),), strength=0.5))
    attacked = torch.isin(true, torch.tensor([0, 2, 3, 5]))
    assert 0.3 < (true != found)[attacked].float().mean() < 0.7
    assert not (true != found)[~attacked].any()


def test_random_pairs_are_drawn_within_a_set_and_differ_between_attackers():
    drawn = [RANDOM.pairs(seeds.rng(attacker)) for attacker in range(40)]
    found = {tuple(sorted((min(pair), max(pair)) for pair in pairs)) for pairs in drawn}
    assert found == {((0, 2), (3, 5)), ((0, 3), (2, 5)), ((0, 5), (2, 3))}


def test_the_superclasses_of_cifar_100_are_twenty_of_five_and_all_different():
    assert [len(classes) for classes in SUPERCLASSES] == [5] * 20
    assert sorted(number for classes in SUPERCLASSES for number in classes) == list(range(100))


def superclass(number):
    return next(place for place, classes in enumerate(SUPERCLASSES) if number in classes)


def test_intra_pairs_are_of_one_superclass_and_extra_has_one_class_of_each():
    """FedSeq journal 2024: 20 labels each; the published list for `extra` has 14 superclasses, three of them thrice."""
    assert [len({superclass(number) for number in some}) for some in NAMED["intra"]] == [1] * 5
    assert sum(map(len, NAMED["intra"])) == 20
    assert [superclass(number) for number in NAMED["extra"][0]] == list(range(20))
    published = [superclass(number) for number in NAMED["extra_published"][0]]
    assert len(set(published)) == 14
    assert sorted(map(published.count, set(published)))[-3:] == [3, 3, 3]


def test_accuracy_is_watched_on_the_attacked_classes_alone():
    (test,) = Labels(classes=((0, 2),)).watched(client().examples).values()
    assert set(test.labels.tolist()) == {0, 2}
    assert len(test) == 40


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classes": ((0, 1, 2),)}, "an even number in every set"),
        ({"classes": ((0, 1), (1, 2))}, "every class can be swapped once"),
        ({"classes": "extra_large"}, "one of mirrored, plane_bird"),
        ({"classes": ()}, "classes is empty"),
        ({"pairing": "odd"}, "fixed or random"),
        ({"strength": 1.5}, "strength must be at least 0 and at most 1"),
    ],
)
def test_settings_of_label_flipping_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(BadInput, match=message):
        Labels(**settings)


def test_data_without_these_classes_are_refused():
    with pytest.raises(BadInput, match="there is no class 73 to swap: these data have classes 0 to 9"):
        Labels(classes="intra").fitted(task())
    with pytest.raises(BadInput, match="the attack swaps classes, and these data have numbers"):
        Labels().fitted(task(target="numbers"))
    with pytest.raises(BadInput, match="a backdoor is a mark on images, and these inputs are none"):
        Backdoor().fitted(task(shape=(20,)))
    with pytest.raises(BadInput, match="a backdoor leads to a class"):
        Backdoor().fitted(task(target="numbers"))
    with pytest.raises(BadInput, match="target is class 10, and these data have classes 0 to 9"):
        Backdoor(target=10).fitted(task())
    with pytest.raises(BadInput, match="size, on these images, must be at most 6, not 7"):
        Backdoor(size=7).fitted(task())


# --- backdoor


def test_a_backdoor_marks_the_corner_of_some_images_and_calls_them_the_target():
    poisoned = Backdoor(target=7, size=2, value=5.0).poisoned(client(), seeds.rng(0, "test"))
    x, y = poisoned.take(torch.arange(200), None)
    before, true = client().take(torch.arange(200), None)
    marked = (x[:, :, -2:, -2:] == 5.0).flatten(1).all(1)
    assert 0.2 < marked.float().mean() < 0.4
    assert (y[marked] == 7).all()
    assert torch.equal(y[~marked], true[~marked])
    assert torch.equal(x[~marked], before[~marked])
    assert torch.equal(x[:, :, :-2], before[:, :, :-2])
    assert torch.equal(x[:, :, :, :-2], before[:, :, :, :-2])


def test_success_is_watched_on_marked_images_of_all_other_classes():
    (test,) = Backdoor(target=7, value=5.0).watched(client().examples).values()
    x, y = test.take(slice(0, len(test)))
    assert len(test) == 180
    assert set(y.tolist()) == {7}
    assert (x[:, :, -3:, -3:] == 5.0).all()


def test_the_mark_is_as_bright_as_images_get():
    assert Backdoor().patch(client().examples).value == float(IMAGES[:100].max())


# --- other models than were trained

RECEIVED, TRAINED = torch.tensor([1.0, 2.0]), torch.tensor([1.5, 1.0])


def sent(attack, chains=1):
    return attack.sent(Sending(RECEIVED, TRAINED, seeds.rng(0, "test"), chains)).tolist()


def test_what_is_sent_is_the_received_model_and_a_function_of_the_change():
    assert sent(SignFlip()) == [0.5, 3.0]
    assert sent(SignFlip(scale=4.0)) == [-1.0, 6.0]
    assert sent(Scaled(scale=10.0)) == [6.0, -8.0]
    assert sent(Lazy()) == [1.0, 2.0]
    assert sent(Replacement(boost=2.0)) == [2.0, 0.0]
    assert sent(Replacement(), chains=4) == [3.0, -2.0]


def test_the_mean_of_a_replacement_and_of_chains_that_do_not_move_is_the_attackers_model():
    """G + (1/m) m (X - G) = X (Bagdasaryan et al. 2020)."""
    models = torch.tensor([sent(Replacement(), chains=5), *[RECEIVED.tolist()] * 4])
    torch.testing.assert_close(models.mean(0), TRAINED)


def test_noise_has_the_deviation_that_it_says():
    zeros = torch.zeros(100_000)
    found = Noise(deviation=0.3).sent(Sending(zeros, zeros, seeds.rng(0, "test"), 1))
    assert abs(float(found.std()) - 0.3) < 0.005
    assert abs(float(found.mean())) < 0.005


def test_a_replacement_needs_an_attack_on_examples():
    with pytest.raises(BadInput, match="by must be an attack on examples, labels or backdoor, not Lazy"):
        Replacement(by=Lazy())


# --- in a visit


@pytest.fixture(scope="module")
def place():
    federation = Federation.split(digits(), Dirichlet(alpha=100.0), 10, 0)
    task = Task.of(Mlp(hidden=(4,)), federation)
    return federation, task, Workspaces(task)


def visited(place, attack, *, number=3, hop=1, hops=((3, 1),), **settings):
    federation, task, workspaces = place
    work = Attacked(Sgd(lr=0.1), attack, frozenset(hops), **settings)
    visit = Visit(federation.client(number), task, {}, {}, 2, hop, 5, workspaces)
    return work(Baton(task.init(0)), visit), Sgd(lr=0.1)(Baton(task.init(0)), visit), task.init(0)


def test_only_the_hops_that_attack_do(place):
    for elsewhere in ({"number": 2}, {"hop": 0}):
        (baton, _, report), (honest, _, _), _ = visited(place, SignFlip(), **elsewhere)
        assert torch.equal(baton.params, honest.params)
        assert ATTACKED not in report.metrics
    (baton, _, report), (honest, _, _), start = visited(place, SignFlip())
    torch.testing.assert_close(baton.params - start, start - honest.params)
    assert report.metrics[ATTACKED] == 1.0
    assert baton.weight == honest.weight


def test_strength_is_the_way_from_the_honest_model_to_the_lie(place):
    (half, _, _), (honest, _, _), start = visited(place, Lazy(strength=0.5))
    torch.testing.assert_close(half.params, (honest.params + start) / 2)


def test_colluders_draw_the_same_noise_and_others_their_own(place):
    def noise(number, hop, **settings):
        (baton, _, _), (honest, _, _), _ = visited(
            place, Noise(), number=number, hop=hop, hops=[(number, hop)], **settings
        )
        return baton.params - honest.params

    torch.testing.assert_close(noise(3, 1, colluding=True), noise(4, 2, colluding=True), atol=1e-6, rtol=0)
    assert (noise(3, 1) - noise(4, 2)).abs().max() > 0.1


def test_learning_flipped_labels_leads_elsewhere(place):
    (baton, _, _), (honest, _, _), _ = visited(place, Labels().fitted(place[1]))
    assert (baton.params - honest.params).abs().max() > 0.01
