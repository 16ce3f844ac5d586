"""Adam and AdamW at the clients against PyTorch's own, and what they go together with."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import fedrelay as fr
from fedrelay import Adam, AdamW, BadInput, Federation, Sgd, Task, config, train
from fedrelay.algorithms import fednova, scaffold
from fedrelay.data import Dirichlet, digits
from fedrelay.engines import Inline
from fedrelay.models import Mlp
from fedrelay.tasks import Workspaces
from fedrelay.types import Baton, Visit
from fedrelay.visits import Proximal, Training
from fedrelay.visits.schedules import Step

ORACLES: dict[type[Training], Callable[..., torch.optim.Optimizer]] = {
    Adam: torch.optim.Adam,
    AdamW: torch.optim.AdamW,
}
STEPS = {"steps": 6, "batch": 0}
CLIENT = 3


@pytest.fixture(scope="module")
def federation() -> Federation:
    """Sizes from a handful to hundreds."""
    return Federation.split(digits(), Dirichlet(alpha=0.1, deal="classes"), 14, seed=5)


@pytest.fixture(scope="module")
def task(federation) -> Task:
    return Task.of(Mlp(hidden=(12,)), federation)


def visit_of(federation, task, *, client=CLIENT, round=1) -> Visit:
    return Visit(federation.client(client), task, {}, {}, round, 0, seed=7, workspaces=Workspaces(task))


def network_of(task: Task, params: torch.Tensor) -> nn.Module:
    """An ordinary, unbound network with these weights."""
    network = task.model(task.shape, task.classes)
    with torch.no_grad():
        for name, value in task.layout.pieces(params).items():
            network.get_parameter(name).copy_(value)
    return network


def by_torch(network: nn.Module, optimiser, client, *, mu: float = 0.0) -> None:
    """Six steps on all of a client's examples, with a spring of strength mu to the beginning, added by hand."""
    x, y = client.take(torch.arange(client.size), None)
    anchors = [parameter.detach().clone() for parameter in network.parameters()]
    for _ in range(STEPS["steps"]):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        for parameter, anchor in zip(network.parameters(), anchors, strict=True):
            parameter.grad.add_(mu * (parameter.detach() - anchor))
        optimiser.step()


def assert_same(task: Task, params: torch.Tensor, network: nn.Module) -> None:
    for name, value in task.layout.pieces(params).items():
        torch.testing.assert_close(value, network.get_parameter(name).detach(), atol=1e-5, rtol=1e-4)


SETTINGS = [
    ({}, {}),
    ({"lr": 0.01}, {"lr": 0.01}),
    ({"lr": 0.01, "beta1": 0.5, "beta2": 0.9, "eps": 1e-4}, {"lr": 0.01, "betas": (0.5, 0.9), "eps": 1e-4}),
    ({"lr": 0.01, "weight_decay": 0.3}, {"lr": 0.01, "weight_decay": 0.3}),
    ({"lr": 0.01, "beta1": 0.0, "weight_decay": 0.0}, {"lr": 0.01, "betas": (0.0, 0.999), "weight_decay": 0.0}),
]


@pytest.mark.parametrize("kind", [Adam, AdamW])
@pytest.mark.parametrize(("ours", "theirs"), SETTINGS)
def test_steps_on_given_gradients_are_those_of_torch(kind, ours, theirs):
    draw = torch.Generator().manual_seed(1)
    weights = torch.randn(500, generator=draw)
    expected = nn.Parameter(weights.clone())
    local = kind(**ours)
    optimiser, oracle = local.optimiser(weights), ORACLES[kind]([expected], **theirs)
    for _ in range(20):
        gradient = torch.randn(500, generator=draw)
        expected.grad = gradient.clone()
        optimiser.step(weights, gradient, local.lr)
        oracle.step()
    torch.testing.assert_close(weights, expected.detach(), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", [Adam, AdamW])
@pytest.mark.parametrize(("ours", "theirs"), SETTINGS)
def test_a_visit_is_that_of_torch(federation, task, kind, ours, theirs):
    start, client = task.init(5), federation.client(CLIENT)
    baton, _, report = kind(**STEPS, **ours)(Baton(start), visit_of(federation, task))
    network = network_of(task, start)
    by_torch(network, ORACLES[kind](network.parameters(), **theirs), client)
    assert_same(task, baton.params, network)
    assert not torch.allclose(baton.params, start, atol=1e-3)
    assert report.examples == 6 * client.size
    assert baton.weight == client.size


def test_weight_decay_is_coupled_in_adam_and_decoupled_in_adamw():
    """Without a gradient, Adam scales the decay to steps of length lr; AdamW takes lr times the decay off weights."""
    for local, expected in [(Adam(lr=0.1, weight_decay=0.5), [1.9, -2.9]), (AdamW(lr=0.1, weight_decay=0.5), None)]:
        weights = torch.tensor([2.0, -3.0])
        local.optimiser(weights).step(weights, torch.zeros(2), local.lr)
        assert weights.tolist() == pytest.approx(expected or [2 * 0.95, -3 * 0.95])


@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_a_force_is_part_of_the_gradient(federation, task, kind):
    start = task.init(5)
    local = kind(**STEPS, lr=0.01, weight_decay=0.1, terms=(Proximal(0.7),))
    baton, _, _ = local(Baton(start), visit_of(federation, task))
    network = network_of(task, start)
    oracle = ORACLES[kind](network.parameters(), lr=0.01, weight_decay=0.1)
    by_torch(network, oracle, federation.client(CLIENT), mu=0.7)
    assert_same(task, baton.params, network)
    plain, _, _ = kind(**STEPS, lr=0.01, weight_decay=0.1)(Baton(start), visit_of(federation, task))
    assert not torch.allclose(plain.params, baton.params, atol=1e-4)


@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_the_schedule_multiplies_the_learning_rate(federation, task, kind):
    start = task.init(5)
    local = kind(**STEPS, lr=0.04, schedule=Step(every=1, factor=0.5))
    baton, _, _ = local(Baton(start), visit_of(federation, task, round=3))
    network = network_of(task, start)
    by_torch(network, ORACLES[kind](network.parameters(), lr=0.01), federation.client(CLIENT))
    assert_same(task, baton.params, network)


@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_every_visit_has_a_new_optimiser(federation, task, kind):
    start, visit, local = task.init(5), visit_of(federation, task), kind(**STEPS, lr=0.01)
    first, memory, _ = local(Baton(start), visit)
    second, _, _ = local(first, visit)
    assert memory == {}
    network = network_of(task, start)
    for _ in range(2):
        by_torch(network, ORACLES[kind](network.parameters(), lr=0.01), federation.client(CLIENT))
    assert_same(task, second.params, network)
    going_on = network_of(task, start)
    optimiser = ORACLES[kind](going_on.parameters(), lr=0.01)
    for _ in range(2):
        by_torch(going_on, optimiser, federation.client(CLIENT))
    travelled = torch.cat([parameter.detach().flatten() for parameter in going_on.parameters()])
    assert not torch.allclose(second.params, travelled, atol=1e-3)


@pytest.mark.parametrize("kind", [Adam, AdamW])
@pytest.mark.parametrize(
    "settings",
    [{"batch": 7, "epochs": 2}, {"batch": 5, "steps": 9, "weight_decay": 0.1, "clip": 0.5, "terms": (Proximal(0.5),)}],
)
def test_several_visits_at_once_are_those_one_by_one(federation, task, kind, settings):
    clients = [0, 1, 2, 3, 4]
    assert len({federation.client(client).size for client in clients}) > 3  # so that rows end at different steps
    local = kind(lr=0.01, **settings)
    assert local.stacks(task)
    workspaces = Workspaces(task)
    visits = [Visit(federation.client(client), task, {}, {}, 1, 0, seed=7, workspaces=workspaces) for client in clients]
    batons = [Baton(task.init(client)) for client in clients]
    together = local.together(batons, visits)
    for baton, visit, (found, memory, report) in zip(batons, visits, together, strict=True):
        expected, _, told = local(baton, visit)
        torch.testing.assert_close(found.params, expected.params, atol=1e-4, rtol=1e-3)
        assert (found.weight, memory, report.examples) == (expected.weight, {}, told.examples)
        assert report.metrics["loss"] == pytest.approx(told.metrics["loss"], rel=1e-4)


# --- refusals and configuration

TABLES = {
    "rounds": 1,
    "data": {"name": "digits", "clients": 5},
    "model": {"name": "mlp", "hidden": [8]},
    "algorithm": {"name": "fedavg"},
    "engine": {"name": "inline"},
}


@pytest.mark.parametrize(
    ("local", "message"),
    [
        ({"optimiser": "adm"}, r"\[local\].optimiser: unknown name 'adm'; did you mean 'adam'\?"),
        ({"optimiser": "adam_w"}, r"\[local\].optimiser: unknown name 'adam_w'; did you mean 'adamw'\?"),
        ({"optimizer": "adam"}, r"\[local\]: unknown key 'optimizer'; did you mean 'optimiser'\?"),
        ({"optimiser": "adam", "beta_1": 0.5}, r"\[local\]: unknown key 'beta_1'; did you mean 'beta1'\?"),
        ({"optimiser": "adamw", "weightdecay": 0.5}, r"unknown key 'weightdecay'; did you mean 'weight_decay'\?"),
        ({"optimiser": "adam", "epsilon": 0.5}, r"\[local\]: unknown key 'epsilon'.*eps"),
        ({"optimiser": 3}, r"\[local\].optimiser: expected a name, not 3; one of sgd, adam, adamw"),
        ({"optimiser": "adam", "momentum": 0.5}, r"\[local\]: unknown key 'momentum': .* sgd, not of adam \(.*beta1"),
        ({"optimiser": "sgd", "beta1": 0.5}, r"unknown key 'beta1': .* adam and adamw, not of sgd \(.*momentum"),
        ({"eps": 0.1}, r"\[local\]: unknown key 'eps': that is of the optimiser adam and adamw, not of sgd"),
        ({"optimiser": "adam", "beta1": 1.0}, r"\[local\]: beta1 must be below 1, not 1"),
        ({"optimiser": "adamw", "beta2": -0.1}, r"\[local\]: beta2 must be at least 0, not -0.1"),
        ({"optimiser": "adam", "eps": 0.0}, r"\[local\]: eps must be above 0, not 0"),
        ({"optimiser": "adam", "lr": -1.0}, r"\[local\]: lr must be at least 0, not -1"),
    ],
)
def test_a_wrong_optimiser_or_key_is_refused_with_the_nearest_right_one(local, message):
    with pytest.raises(BadInput, match=message):
        config.build({**TABLES, "local": local})


def test_the_configuration_chooses_the_optimiser_and_says_all_its_settings():
    built = config.build({**TABLES, "local": {"optimiser": "adamw", "beta1": 0.8}})
    assert built.algorithm.update == AdamW(beta1=0.8)
    told = built.tables["local"]
    assert (told["optimiser"], told["lr"], told["weight_decay"]) == ("adamw", 0.001, 0.01)
    assert (told["beta1"], told["beta2"], told["eps"]) == (0.8, 0.999, 1e-8)
    assert config.build({**TABLES, "local": {}}).algorithm.update == Sgd()
    assert config.build(built.tables).algorithm.update == AdamW(beta1=0.8)


REASON = "reads gradients off the way a model went, which Adam scales number by number: use SGD"


@pytest.mark.parametrize("change", [scaffold(option="II"), fednova()])
def test_what_reads_gradients_off_the_way_is_refused_with_the_reason(change):
    with pytest.raises(BadInput, match=REASON):
        fr.method(change, local=Adam())


def test_scaffold_of_option_two_is_refused_in_a_configuration_too():
    with pytest.raises(BadInput, match=rf"\[algorithm\]: .*Control\(option='II'\) {REASON}"):
        config.build({**TABLES, "local": {"optimiser": "adam"}, "algorithm": {"name": "scaffold", "option": "II"}})


def test_scaffold_of_option_one_takes_its_gradients_itself_and_goes_with_adam(federation, task):
    algorithm = fr.method(scaffold(option="I"), local=Adam(batch=16), fraction=0.3)
    states = list(train(algorithm, Inline(federation, task), rounds=2))
    assert [state.log.drops for state in states] == [(), ()]
    assert states[-1].shared["control"].abs().sum() > 0
