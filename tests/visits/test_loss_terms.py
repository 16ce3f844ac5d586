"""Terms of the loss against plain PyTorch, and what a model must have for them."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, config, start
from fedrelay.algorithms import fedfusion, fedmmd
from fedrelay.algorithms.fedfusion import Fusing
from fedrelay.data import Iid, digits, quadratic
from fedrelay.engines import Inline
from fedrelay.models import CharLstm, Fused, LeNet5, Mlp, Network, Own, Quadratic, ResNet18, SmallCnn
from fedrelay.models.fused import Fusion
from fedrelay.runs.loop import adapted, deployed, train
from fedrelay.tasks import Workspaces, evaluate
from fedrelay.types import Baton, Visit
from fedrelay.visits import Proximal, Sharpness
from fedrelay.visits.loss_terms import AUTHORS_WIDTHS, Discrepancy, Distillation, discrepancy, looking_at

STEPS = {"steps": 4, "batch": 0, "lr": 0.2}


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation.split(digits(), Iid(), 20)


def visit_of(federation, task) -> Visit:
    return Visit(federation.client(3), task, {}, {}, 1, 0, seed=7, workspaces=Workspaces(task))


def ordinary(task: Task, params: torch.Tensor) -> nn.Module:
    """The same network as an ordinary, unbound one with these weights."""
    network = deepcopy(task.model(task.shape, task.classes))
    with torch.no_grad():
        for name, value in task.layout.pieces(params).items():
            network.get_parameter(name).copy_(value)
    return network


def by_torch(task, start, federation, loss_of, steps=4, lr=0.2) -> nn.Module:
    """Four full-batch steps of torch.optim.SGD on a loss of (network, received network, x, y)."""
    network, received = ordinary(task, start), ordinary(task, start).eval()
    optimiser = torch.optim.SGD(network.parameters(), lr=lr)
    client = federation.client(3)
    x, y = client.take(torch.arange(client.size), None)
    for _ in range(steps):
        optimiser.zero_grad()
        loss_of(network, received, x, y).backward()
        optimiser.step()
    return network


def check_same(task, params, network, atol=2e-6):
    for name, value in task.layout.pieces(params).items():
        torch.testing.assert_close(value, network.get_parameter(name).detach(), atol=atol, rtol=1e-4)


# --- the discrepancy


def mmd_by_numpy(a: np.ndarray, b: np.ndarray, widths) -> float:
    def kernel(x, y):
        return sum(np.exp(-np.sum((x - y) ** 2) / (2 * w)) for w in widths)

    def mean(rows, columns):
        return np.mean([[kernel(x, y) for y in columns] for x in rows])

    return mean(a, a) + mean(b, b) - 2 * mean(a, b)


def test_the_discrepancy_is_its_definition():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 3)), rng.normal(loc=1.0, size=(4, 3))
    for widths in ((1.0,), (0.3, 4.0), AUTHORS_WIDTHS):  # the last needs exact distances
        found = float(discrepancy(torch.tensor(a), torch.tensor(b), widths))
        assert found == pytest.approx(mmd_by_numpy(a, b, widths), rel=1e-9)
        assert float(discrepancy(torch.tensor(a), torch.tensor(a), widths)) == pytest.approx(0, abs=1e-12)


def test_the_discrepancy_of_two_single_points_by_hand():
    # one point each, d² = 4, width 1: k(a, a) = k(b, b) = 1, k(a, b) = exp(-4 / 2)
    points = torch.tensor([[0.0, 0.0]]), torch.tensor([[2.0, 0.0]])
    assert float(discrepancy(*points, (1.0,))) == pytest.approx(2 - 2 * np.exp(-2))
    # the median of the only squared distance is itself: exp(-4 / 8)
    assert float(discrepancy(*points)) == pytest.approx(2 - 2 * np.exp(-0.5))
    assert float(discrepancy(*points, (1.0, 2.0))) == pytest.approx(4 - 2 * np.exp(-2) - 2 * np.exp(-1))


def test_the_kernel_is_not_saturated_however_far_apart_features_are():
    # As wide as the features of a real batch: d² is about 2 · 50 · 10². A Gaussian of width 1 is flat there.
    a, b = (torch.tensor(np.random.default_rng(seed).normal(seed, 10, size=(40, 50))) for seed in (0, 3))
    for widths, steep in (((1.0,), False), ((), True)):
        moving = a.clone().requires_grad_()
        discrepancy(moving, b, widths).backward()
        assert (float(moving.grad.norm()) > 1e-4) is steep
    assert float(discrepancy(a, a)) == 0  # equal models
    assert float(discrepancy(torch.ones(3, 2), torch.ones(3, 2))) == 0  # all rows the same


@pytest.mark.parametrize("between", ["features", "logits"])
def test_fedmmd_minimises_cross_entropy_plus_the_discrepancy(federation, between):
    task = Task.of(Mlp(hidden=(12,)), federation)
    start = task.init(5)

    def loss_of(network, received, x, y):
        now, before = network.body(x), received.body(x).detach()
        pair = (now, before) if between == "features" else (network.head(now), received.head(before).detach())
        return functional.cross_entropy(network.head(now), y) + 0.5 * discrepancy(*pair)

    local = Sgd(**STEPS, terms=(Discrepancy(0.5, between),))
    found, _, _ = local(Baton(start), visit_of(federation, task))
    check_same(task, found.params, by_torch(task, start, federation, loss_of))
    plain, _, _ = Sgd(**STEPS)(Baton(start), visit_of(federation, task))
    assert not torch.allclose(plain.params, found.params, atol=1e-5)


def test_fedmmd_holds_the_features_where_they_were(federation):
    task = Task.of(Mlp(hidden=(12,)), federation)
    start, client = task.init(5), federation.client(3)
    x, _ = client.take(torch.arange(client.size), None)

    def moved(weight: float) -> float:
        local = Sgd(epochs=5, batch=8, lr=0.1, terms=(Discrepancy(weight),))
        found, _, _ = local(Baton(start), visit_of(federation, task))
        before, after = (ordinary(task, params).body(x).detach() for params in (start, found.params))
        return float(discrepancy(after, before, (1.0,)))

    assert moved(1.0) < 0.2 * moved(0.0)


@pytest.mark.parametrize("objective", [Discrepancy(0.0), Discrepancy(0.0, "logits"), Distillation(0.0)])
def test_an_objective_of_weight_zero_is_plain_training(federation, objective):
    task = Task.of(Mlp(hidden=(12,)), federation)
    plain, with_it = (
        Sgd(epochs=2, batch=8, lr=0.1, terms=terms)(Baton(task.init(5)), visit_of(federation, task))[0]
        for terms in ((), (objective,))
    )
    torch.testing.assert_close(plain.params, with_it.params, atol=1e-6, rtol=0)


def test_distillation_learns_from_the_received_model(federation):
    task = Task.of(Mlp(hidden=(12,)), federation)
    start = task.init(5)

    def loss_of(network, received, x, y):
        logits, taught = network(x), functional.softmax(received(x).detach() / 3, dim=1)
        divergence = (taught * (taught.log() - functional.log_softmax(logits / 3, dim=1))).sum(1).mean()
        return functional.cross_entropy(logits, y) + 0.7 * 9 * divergence

    local = Sgd(**STEPS, terms=(Distillation(weight=0.7, temperature=3.0),))
    found, _, _ = local(Baton(start), visit_of(federation, task))
    check_same(task, found.params, by_torch(task, start, federation, loss_of))


def test_the_received_model_is_looked_at_without_dropout(federation):
    task = Task.of(Own(nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))), federation)
    start, visit = task.init(5), visit_of(federation, task)
    x, _ = visit.client.take(torch.arange(4), None)
    seen = looking_at(start, visit).network(x)
    plain = x.flatten(1) @ start[:640].reshape(10, 64).T + start[640:]
    torch.testing.assert_close(seen, plain)


# --- fusion


@pytest.mark.parametrize("operator", ["conv", "multi", "single"])
def test_fedfusion_trains_extractor_fusion_and_classifier_on_fused_features(federation, operator):
    task = Fusing(operator).adapt(Task.of(SmallCnn(channels=(4,)), federation))
    start = task.init(5)
    if operator != "conv":
        task.layout.pieces(start)["body.fusion.share"].fill_(0.25)

    def loss_of(network, received, x, y):
        own, other = network.body.extractor(x), received.body.extractor(x).detach()
        if operator == "conv":  # a 1x1 convolution over both sets of channels
            mix = network.body.fusion.mix
            fused = functional.conv2d(torch.cat((own, other), dim=1), mix.weight[:, :, None, None], mix.bias)
        else:
            share = network.body.fusion.share.view(1, -1, 1, 1)
            fused = share * other + (1 - share) * own
        return functional.cross_entropy(network.head(fused.flatten(1)), y)

    local = Sgd(**STEPS, terms=(Fusing(operator, decay=0.0),))
    found, _, _ = local(Baton(start), visit_of(federation, task))
    check_same(task, found.params, by_torch(task, start, federation, loss_of), atol=5e-6)


def test_the_weights_of_fusion_follow_slowly(federation):
    task = Fusing("multi").adapt(Task.of(SmallCnn(channels=(4,)), federation))
    start = task.init(5)
    share = {}
    for decay in (0.0, 0.9):
        local = Sgd(**STEPS, terms=(Fusing("multi", decay),))
        found, _, _ = local(Baton(start), visit_of(federation, task))
        share[decay] = task.layout.pieces(found.params)["body.fusion.share"]
    assert share[0.0].abs().max() > 0
    torch.testing.assert_close(share[0.9], 0.1 * share[0.0])  # from 0


@pytest.mark.parametrize("operator", ["multi", "single"])
def test_alone_a_weighted_fusion_changes_nothing(operator):
    own = torch.randn(2, 4, 3, 3)
    fusion = Fusion(operator, 4)
    nn.init.uniform_(fusion.share)
    torch.testing.assert_close(fusion(own, own), own)


@pytest.mark.parametrize(
    ("model", "shape", "classes", "channels"),
    [
        (LeNet5(), (3, 32, 32), 10, 64),
        (SmallCnn(channels=(4, 6)), (1, 8, 8), 10, 6),
        (ResNet18(), (3, 16, 16), 10, 512),
        (Mlp(hidden=(7,)), (1, 8, 8), 10, 7),
        (CharLstm(hidden=9, layers=1), (5,), 20, 9),
    ],
)
def test_features_are_fused_channel_by_channel_after_the_convolutions(model, shape, classes, channels):
    network = Fused(model, "multi")(shape, classes).eval()
    assert network.body.fusion.share.shape == (channels,)
    plain = model(shape, classes)
    trained = sum(p.numel() for p in plain.parameters())
    assert sum(p.numel() for p in network.parameters()) == trained + channels
    both = sum(p.numel() for p in Fused(model, "conv")(shape, classes).parameters())
    assert both == trained + 2 * channels * channels + channels
    x = torch.zeros(2, *shape) if len(shape) > 1 else torch.zeros(2, *shape, dtype=torch.int64)
    assert network(x).shape == (2, classes)


def test_a_fused_model_is_trained_merged_and_tested_as_any_other(federation):
    method = fr.method(fedfusion(), local=Sgd(batch=16, lr=0.5), fraction=0.5)
    task = adapted(method, Task.of(Mlp(hidden=(24,)), federation))
    engine = Inline(federation, task)
    models = [deployed(state).params for state in train(method, engine, rounds=6)]
    before, after = (
        evaluate(params, federation.test, Workspaces(task))["accuracy"] for params in (task.init(0), models[-1])
    )
    assert after > before + 0.2
    assert adapted(method, task) == task  # adapting again changes nothing


# --- refusals


class Bare(nn.Module):
    """A network whose features nobody can look at."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.flatten(1))


@pytest.mark.parametrize("method", [fedmmd, fedfusion])
def test_a_model_without_features_is_refused_at_the_start(federation, method):
    task = Task.of(Own(Bare()), federation)
    with pytest.raises(BadInput, match=r"needs a model with features, and Bare has no body and head: mlp, lenet5"):
        start(fr.method(method()), Inline(federation, task))


def test_an_own_network_with_body_and_head_will_do(federation):
    own = Own(Network(nn.Flatten(), nn.Linear(64, 10)))
    task = Task.of(own, federation)
    assert adapted(fr.method(fedmmd()), task) == task
    assert isinstance(adapted(fr.method(fedfusion()), task).model, Fused)


def test_logits_can_be_compared_without_features(federation):
    task = Task.of(Own(Bare()), federation)
    found, _, _ = Sgd(**STEPS, terms=(Discrepancy(between="logits"),))(Baton(task.init(0)), visit_of(federation, task))
    assert torch.isfinite(found.params).all()


@pytest.mark.parametrize("objective", [Discrepancy(), Discrepancy(between="logits"), Distillation()])
def test_a_model_without_logits_is_refused(objective):
    federation = Federation.split(quadratic(), Iid(), 3)
    with pytest.raises(BadInput, match=r"has n(either|one)"):
        objective.adapt(Task.of(Quadratic(), federation))


def test_an_engine_with_the_plain_model_is_told_what_to_do(federation):
    task = Task.of(Mlp(hidden=(12,)), federation)
    with pytest.raises(BadInput, match=r"adds to the model: give the engine the task that run.adapted"):
        start(fr.method(fedfusion()), Inline(federation, task))


def test_another_fusion_than_the_models_is_refused(federation):
    task = Task.of(Fused(Mlp(hidden=(12,)), "multi"), federation)
    with pytest.raises(BadInput, match="the model fuses by 'multi', but the method by 'conv'"):
        adapted(fr.method(fedfusion(operator="conv")), task)


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("algorithm", {"name": "fedmmd", "weight": -1}, "weight must be at least 0"),
        ("algorithm", {"name": "fedmmd", "widths": [1], "kernel": "published"}, "published.*widths of its own"),
        ("algorithm", {"name": "fedmmd", "widths": [1, -2]}, "every one of widths must be above 0, not -2"),
        ("algorithm", {"name": "fedmmd", "between": "layers"}, "expected one of features, logits"),
        ("algorithm", {"name": "fedfusion", "operator": "sum"}, "expected one of conv, multi, single"),
        ("algorithm", {"name": "fedfusion", "decay": 2}, "decay must be at least 0 and at most 1"),
        ("local", {"objective": {"name": "distillation", "temperature": 0}}, "temperature must be above 0"),
        ("local", {"objective": "distilation"}, r"\[local\].objective: unknown name 'distilation'; did you mean"),
        ("local", {"pull": {"name": "proximal", "mu": -1}}, r"\[local\].pull: mu must be at least 0"),
        ("local", {"sam": -1}, r"\[local\].sam.* must be at least 0, not -1"),
        ("local", {"guard": 0.5}, "guard must be above 1"),
    ],
)
def test_settings_out_of_range_are_refused_with_their_place(section, values, message):
    tables = {"data": {"name": "digits", "clients": 5}, "model": {"name": "mlp"}, "algorithm": {"name": "fedavg"}}
    with pytest.raises(BadInput, match=message):
        config.build({**tables, section: values})


def test_objectives_and_pulls_are_chosen_in_local():
    tables = {
        "data": {"name": "digits", "clients": 5},
        "model": {"name": "mlp", "hidden": [8]},
        "local": {"objective": "distillation", "pull": {"name": "proximal", "mu": 0.3}, "sam": 0.1},
        "algorithm": {"name": "fedavg"},
    }
    built = config.build(tables)
    assert built.algorithm.update.terms == (Proximal(0.3), Distillation(), Sharpness(0.1))
    assert built.tables["local"]["terms"] == [
        {"name": "proximal", "mu": 0.3},
        {"name": "distillation", "weight": 1.0, "temperature": 2.0},
        {"name": "sharpness", "rho": 0.1},
    ]
    both = config.build({**tables, "algorithm": {"name": "fedmmd"}})
    assert both.algorithm.update.terms == (*built.algorithm.update.terms, Discrepancy())
