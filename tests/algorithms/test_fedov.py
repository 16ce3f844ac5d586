"""FedOV: what clients learn of outliers, how their models vote, and what a run leaves."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, adapted, cli, seeds, train
from fedrelay.algorithms import fedfusion, fedov, fedseqinter
from fedrelay.algorithms.fedov import SIZE, OutlierTerm, harder, masked, to_unknown
from fedrelay.algorithms.outliers import KINDS, blurred, cropped, cut, erased, outliers, turned
from fedrelay.data import Dirichlet, Examples, Iid, Source, diabetes, digits
from fedrelay.engines import Inline
from fedrelay.models import Mlp, MlpNorm, Network, Open, Own, SmallCnn
from fedrelay.tasks import CrossEntropy, OpenSet, OpenSetVote, Workspaces, evaluate
from fedrelay.types import Baton, Visit
from fedrelay.visits.terms import Batch

# --- the vote

# Three models' chances of three classes and of unknown; the results were computed outside this project.
CHANCES = torch.tensor([[0.60, 0.10, 0.05, 0.25], [0.02, 0.28, 0.0, 0.70], [0.10, 0.30, 0.50, 0.10]]).unsqueeze(1)


@pytest.mark.parametrize(
    ("vote", "sums", "chosen"),
    [
        (OpenSetVote(1), (0.10, 0.30, 0.50), 2),
        (OpenSetVote(2), (0.70, 0.40, 0.55), 0),
        (OpenSetVote(3), (0.72, 0.68, 0.55), 0),
        (OpenSetVote(), (0.72, 0.68, 0.55), 0),
        (OpenSetVote(20), (0.72, 0.68, 0.55), 0),
        (OpenSetVote(renormalise=True), (0.978, 1.4, 0.622), 1),
    ],
)
def test_models_that_find_an_image_least_unknown_vote(vote, sums, chosen):
    found = vote(CHANCES.log())
    torch.testing.assert_close(found.exp(), torch.tensor([sums]), atol=5e-4, rtol=0)
    assert int(found.argmax()) == chosen


def test_every_image_has_its_own_sure_models():
    both = torch.cat((CHANCES, CHANCES.flip(0)), 1)
    assert OpenSetVote(1)(both.log()).argmax(-1).tolist() == [2, 2]
    other = torch.cat((CHANCES, CHANCES[:, :, [3, 0, 1, 2]]), 1)  # there the second model is surest
    assert OpenSetVote(1)(other.log()).argmax(-1).tolist() == [2, 0]


# --- the losses


def test_losses_of_a_row_are_those_of_the_formula():
    """Scores (2, 1, 0), of which the last is unknown, and the true class is the first: computed outside."""
    scores, y = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0])
    torch.testing.assert_close(functional.cross_entropy(scores, y).item(), 0.4076060, atol=1e-6, rtol=0)
    torch.testing.assert_close(to_unknown(masked(scores, y), 2).item(), 1.3132617, atol=1e-6, rtol=0)


def visited(model, *, variant="intended", source=None, clients=40):
    """The loss that the first step of a client has, the examples, the task and the model that it received."""
    federation = Federation.split(source or digits(), Iid(), clients)
    algorithm = fr.method(fedov(variant=variant), local=Sgd(steps=1, batch=0, lr=0.1))
    task = adapted(algorithm, Task.of(model, federation))
    visit = Visit(federation.client(3), task, {}, {}, 1, 0, 7, Workspaces(task))
    received = task.init(1)
    loss = algorithm.update(Baton(received), visit)[2].metrics["loss"]
    network = Workspaces(task).main
    network.load(received, training=True)
    order = seeds.rng(7, "visit", 1, 0, 3).permutation(visit.client.size)
    x, y = visit.client.take(torch.from_numpy(order), None)
    return loss, x, y, network.network, seeds.rng(7, "outliers", 1, 0, 3)


def test_a_step_has_all_five_parts_of_the_loss():
    loss, x, y, network, draw = visited(SmallCnn((4,)))
    made = outliers(x, draw)
    order, share = torch.from_numpy(draw.permutation(len(y))), draw.beta(1, 1)
    unlike = y != y[order]
    hidden = network.body[:-1](x)
    blend = (share * hidden + (1 - share) * hidden[order])[unlike]
    worse = made.clone()
    for _ in range(5):
        worse.requires_grad_(True)
        (slope,) = torch.autograd.grad(functional.cross_entropy(network(worse), torch.full_like(y, 10)), worse)
        worse = worse.detach() + 0.002 * slope.sign()
    without = network(x).clone()
    without[torch.arange(len(y)), y] = -1e4

    def unknown(logits):
        return -logits.log_softmax(1)[:, 10].mean()

    expected = functional.cross_entropy(network(x), y) + unknown(network(made)) + unknown(without)
    expected = expected + unknown(network(worse)) + 0.01 * unknown(network.head(blend.flatten(1)))
    torch.testing.assert_close(loss, expected.item(), atol=1e-4, rtol=0)


def test_with_batchnorm_it_is_the_mean_over_images_and_outliers_in_one_batch():
    loss, x, y, network, draw = visited(MlpNorm((8,)))
    together = network(torch.cat((x, outliers(x, draw))))
    targets = torch.cat((y, torch.full_like(y, 10)))
    torch.testing.assert_close(loss, functional.cross_entropy(together, targets).item(), atol=1e-5, rtol=0)


def test_every_model_of_a_pool_has_outliers_of_its_own():
    federation = Federation.split(digits(), Iid(), 40)
    term = OutlierTerm()
    task = term.adapt(Task.of(MlpNorm((8,)), federation))
    visit = Visit(federation.client(3), task, {}, {}, 1, 0, 7, Workspaces(task))
    visit.workspaces.main.load(task.init(1), training=False)
    x, y = visit.client.take(torch.arange(20), None)

    def loss_of(part):
        effect = term.begin(task.init(1), replace(visit, part=part))
        seen = effect.run(x)
        return effect.losses[0](Batch(x, y, seen.features, seen.output)).item()

    assert loss_of(1) == loss_of(1) != loss_of(2)


def many_classes(classes: int = 13, shape=(7, 5, 1), count: int = 130) -> Source:
    """Images that show their class by the place of one bright pixel."""
    draw = np.random.default_rng(3)
    y = np.arange(count) % classes
    x = draw.uniform(0, 0.2, (count, *shape)).astype(np.float32)
    x.reshape(count, -1)[np.arange(count), 2 * y] = 1.0
    examples = Examples(torch.from_numpy(x), torch.from_numpy(y))
    return Source("many", examples, examples, classes)


def test_only_as_published_the_eleventh_class_is_never_learned():
    losses = {}
    for variant in ("intended", "published"):
        losses[variant], x, y, network, _ = visited(Mlp((8,)), variant=variant, source=many_classes(), clients=4)
        each = functional.cross_entropy(network(x), y, reduction="none")
    assert bool((y == 11).any())
    difference = each[y != 11].mean() - each.mean()
    torch.testing.assert_close(losses["published"] - losses["intended"], difference.item(), atol=1e-5, rtol=0)


def test_harder_outliers_are_less_unknown_and_stay_within_reach():
    torch.manual_seed(0)
    network, made = nn.Sequential(nn.Flatten(), nn.Linear(16, 4)), torch.rand(8, 1, 4, 4)
    worse = harder(network, made, 3)
    with torch.no_grad():
        assert to_unknown(network(worse), 3) > to_unknown(network(made), 3)
    assert float((worse - made).abs().max()) <= 5 * SIZE + 1e-6
    limited, free = (harder(network, made, 3, steps=9, reach=reach) for reach in (3 * SIZE, None))
    assert float((limited - made).abs().max()) <= 3 * SIZE + 1e-6
    assert float((free - made).abs().max()) > 8 * SIZE


# --- outliers


@pytest.mark.parametrize("shape", [(1, 4, 4), (3, 5, 5), (1, 6, 7), (2, 8, 5), (3, 32, 32), (1, 13, 9)])
def test_every_kind_damages_images_of_any_sides(shape):
    draw = np.random.default_rng(0)
    for kind in KINDS:
        changed = 0
        for _ in range(20):
            image = torch.rand(shape)
            before = image.clone()
            after = kind(image, draw)
            assert after.shape == image.shape
            assert torch.equal(image, before)
            assert float(after.min()) >= -1e-6
            assert float(after.max()) <= 1 + 1e-6
            changed += not torch.equal(after, image)
        assert changed >= 15, kind.__name__


def test_kinds_do_what_they_say():
    draw, image = np.random.default_rng(1), torch.arange(64.0).reshape(1, 8, 8) + 1
    for _ in range(50):
        gone = float((erased(image, draw) == 0).float().mean())
        assert 0.25 <= gone <= 0.6
        assert sorted(turned(image, draw).flatten().tolist()) == sorted(image.flatten().tolist())
        assert set(cut(image, draw).flatten().tolist()) <= set(image.flatten().tolist())
        assert float(blurred(image, draw).std()) < float(image.std())
        small = cropped(image, draw)
        assert float(small.max() - small.min()) < 0.9 * 63
    torch.testing.assert_close(blurred(torch.full((2, 8, 8), 0.5), draw), torch.full((2, 8, 8), 0.5))


def test_all_seven_kinds_are_drawn_and_the_draw_decides():
    x = torch.rand(70, 1, 8, 8)
    one, again, other = (outliers(x, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert len(KINDS) == 7


# --- runs


def run(change, engine_of_task, federation, model, rounds=1, **local):
    algorithm = fr.method(change, local=Sgd(**local))
    task = adapted(algorithm, Task.of(model, federation))
    *_, state = train(algorithm, engine_of_task(federation, task, 1), rounds=rounds)
    return algorithm, task, state


def test_the_vote_knows_what_no_client_knows_alone():
    """Two clients, one with the digits 0 to 4, the other with the rest."""
    source = digits()
    labels = source.train.labels
    federation = Federation.of(source, [np.flatnonzero(labels < 5), np.flatnonzero(labels >= 5)])
    local = {"epochs": 8, "lr": 0.05, "momentum": 0.9, "batch": 32}
    algorithm, task, state = run(fedov(), Inline, federation, Mlp((32,)), **local)
    workspaces = Workspaces(task)
    voted = evaluate(fr.deployed(state, algorithm), source.test, workspaces)["accuracy"]
    alone = [evaluate(OpenSet((one,)), source.test, workspaces)["accuracy"] for one in state.server["models"]]
    assert max(alone) < 0.55 < 0.7 < voted


def test_more_than_ten_classes_and_odd_sides_are_learned():
    source = many_classes()
    federation = Federation.split(source, Iid(), 2)
    local = {"epochs": 40, "lr": 0.1, "momentum": 0.9, "batch": 16}
    algorithm, task, state = run(fedov(), Inline, federation, Mlp((32,)), **local)
    assert task.layout.entries[-1].shape == (14,)
    predictor = fr.deployed(state, algorithm)
    assert predictor.outputs(Workspaces(task))(source.test.take(slice(0, 3))[0]).shape == (3, 13)
    assert evaluate(predictor, source.test, Workspaces(task))["accuracy"] > 0.8


def test_a_round_costs_a_model_each_way_and_all_models_are_kept():
    federation = Federation.split(digits(), Dirichlet(alpha=0.5), 4, 1)
    algorithm, _, state = run(fedov(), Inline, federation, Mlp((8,)))
    model = 4 * ((64 * 8 + 8) + (8 * 11 + 11))
    assert state.log.bytes == {"server_to_client": 4 * model, "client_to_server": 4 * model, "client_to_client": 0}
    assert len(fr.deployed(state, algorithm).vectors) == 4
    assert fr.deployed(state, algorithm).tests == "4 models that vote"


def test_distilled_it_is_one_model_that_answers_with_classes_only():
    federation = Federation.split(digits(), Iid(), 2)
    change = fedov(distil=True)
    quick = replace(change.merge, steps=2, batch=8, threads=1)
    change = replace(change, merge=quick)
    algorithm, task, state = run(change, Inline, federation, Mlp((8,)), rounds=2)
    predictor = fr.deployed(state, algorithm)
    assert (len(predictor.vectors), predictor.tests, len(state.server["models"])) == (1, "one model", 2)
    x = federation.test.take(slice(0, 5))[0]
    workspaces = Workspaces(task)
    workspaces.main.load(predictor.vectors[0], training=False)
    plain = workspaces.main.network(x)[:, :10]
    assert torch.equal(predictor.outputs(Workspaces(task))(x).argmax(1), plain.argmax(1))


def test_between_two_merges_the_models_on_their_way_vote():
    federation = Federation.split(digits(), Iid(), 4)
    algorithm = fr.method(fedseqinter(max_clients=2, period=2), fedov(), local=Sgd(steps=1))
    task = adapted(algorithm, Task.of(Mlp((8,)), federation))
    first, second = train(algorithm, Inline(federation, task, 1), rounds=2)
    for state, models in ((first, [b.params for b in first.batons]), (second, second.server["merge"]["models"])):
        found = fr.deployed(state, algorithm).vectors
        assert len(found) == 2
        assert all(torch.equal(*pair) for pair in zip(found, models, strict=True))


def test_a_finished_run_has_the_voting_models_in_its_folder(tmp_path, capsys):
    file = tmp_path / "run.toml"
    file.write_text("""
rounds = 1
[data]
name = "digits"
clients = 3
[model]
name = "mlp"
hidden = [8]
[local]
epochs = 2
[algorithm]
name = "fedov"
lowest = 2
[engine]
name = "inline"
""")
    folder = tmp_path / "run"
    assert cli.main(["run", str(file), "--out", str(folder), "--json"]) == 0
    capsys.readouterr()
    summary = json.loads((folder / "summary.json").read_text())
    network, test = fr.load_model(folder), digits().test
    x, y = test.take(slice(0, len(test)))
    with torch.no_grad():
        answers = network(x)
    assert answers.shape == (len(test), 10)
    assert float((answers.argmax(1) == y).float().mean()) == pytest.approx(summary["accuracy"])
    assert cli.main(["predict", str(folder), "digits"]) == 0
    capsys.readouterr()


# --- what is refused


def test_what_has_no_outliers_or_no_room_for_unknown_is_refused():
    def refused(source, words, model=Mlp((4,)), **settings):
        federation = Federation.split(source, Iid(), 2)
        with pytest.raises(BadInput, match=words):
            adapted(fr.method(fedov()), Task.of(model, federation, **settings))

    flat = Examples(torch.zeros(4, 9), torch.tensor([0, 1, 0, 1]))
    tiny = Examples(torch.zeros(4, 3, 3, 1), torch.tensor([0, 1, 0, 1]))
    refused(Source("flat", flat, flat, 2), r"at least 4x4 pixels.* the shape \(9,\)")
    refused(Source("tiny", tiny, tiny, 2), r"at least 4x4 pixels.* the shape \(1, 3, 3\)")
    refused(diabetes(), "one class or unknown")
    refused(digits(), "counts all alike", loss=CrossEntropy((1.0,) * 10))
    fixed = Own(Network(nn.Flatten(), nn.Linear(64, 10)))
    refused(digits(), "your network has 10 outputs: give its head 11", model=fixed)
    with pytest.raises(BadInput, match="lowest must be at least 1"):
        fedov(lowest=0)
    with pytest.raises(BadInput, match="variant must be"):
        fedov(variant="other")
    with pytest.raises(BadInput, match="how the model is run"):
        fr.method(fedov(), fedfusion())


def test_a_network_of_ones_own_with_an_output_for_unknown_is_taken():
    federation = Federation.split(digits(), Iid(), 2)
    own = Own(Network(nn.Flatten(), nn.Linear(64, 11)))
    task = adapted(fr.method(fedov()), Task.of(own, federation))
    assert task.model == Open(own)
