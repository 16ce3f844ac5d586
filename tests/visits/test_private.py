"""Parts of the model that stay at home: closed forms on quadratic clients, and what leaves a client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, adapted, deployed, start, train
from fedrelay.algorithms import fedbn, fedcyclic, feddyn, fedper, fedrep, fedseq, scaffold
from fedrelay.data import Dirichlet, Natural, digits, quadratic_of
from fedrelay.data.federation import Examples, Source
from fedrelay.engines import Inline, Stacked
from fedrelay.models import Mlp, MlpNorm, Own
from fedrelay.runs.costs import size_of
from fedrelay.runs.latency import Latency, Same
from fedrelay.tasks import PRIVATE, PerClient, Workspaces
from fedrelay.tasks.parts import parts_of, places
from fedrelay.types import Trait
from fedrelay.vectors import Layout
from fedrelay.visits.private import Private, between
from fedrelay.visits.traits import ClassifierWeights

# Three clients in three dimensions: the first number is common, the last two are everybody's own.
MATRICES = [
    np.array([[2.0, 0.5, 0.3], [0.5, 1.0, 0.2], [0.3, 0.2, 1.5]]),
    np.array([[1.0, -0.4, 0.1], [-0.4, 2.0, 0.0], [0.1, 0.0, 1.0]]),
    np.array([[3.0, 0.2, -0.6], [0.2, 1.2, 0.3], [-0.6, 0.3, 2.0]]),
]
CENTRES = [np.array([1.0, 2.0, -1.0]), np.array([-2.0, 0.5, 3.0]), np.array([0.5, -1.0, 1.0])]
SIZES = (10, 20, 30)
SHARES = np.array(SIZES) / 60


class TwoParts(nn.Module):
    """(w - b)' A (w - b) / 2 where w is a common number, then two of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.common = nn.Parameter(torch.zeros(1))
        self.own = nn.Parameter(torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        offset = torch.cat((self.common, self.own)) - x[:, :3]
        return (offset * torch.bmm(x[:, 3:].view(-1, 3, 3), offset.unsqueeze(2)).squeeze(2)).sum(1) / 2


@dataclass(frozen=True)
class TwoPartModel:
    loss: ClassVar[str] = "output"

    def __call__(self, shape, classes, /):
        return TwoParts()


def three() -> Inline:
    federation = Federation.split(quadratic_of(MATRICES, CENTRES, SIZES), Natural())
    return Inline(federation, Task.of(TwoPartModel(), federation))


def joint_optimum(shares: np.ndarray) -> np.ndarray:
    """Where Σ pᵢ fᵢ(common, ownᵢ) is least: the common number, then every client's two, by its linear equations."""
    system, right = np.zeros((7, 7)), np.zeros(7)
    for client, (a, b, share) in enumerate(zip(MATRICES, CENTRES, shares, strict=True)):
        index = [0, 1 + 2 * client, 2 + 2 * client]
        system[np.ix_(index, index)] += share * a
        right[index] += share * (a @ b)
    return np.linalg.solve(system, right)


def ends(algorithm, engine, rounds=120) -> np.ndarray:
    """The common number and everybody's own ones after so many rounds."""
    *_, state = train(algorithm, engine, rounds=rounds)
    predictor = deployed(state, algorithm, engine)
    assert isinstance(predictor, PerClient)
    models = [predictor.for_client(client).params.numpy() for client in range(3)]
    assert len({float(model[0]) for model in models}) == 1
    return np.concatenate([models[0][:1], *(model[1:] for model in models)])


ONE_STEP = Sgd(steps=1, batch=0, lr=0.2)


def test_one_step_a_round_ends_at_the_joint_optimum():
    """Then a round is a step of gradient descent on the joint loss, whatever the curvatures."""
    found = ends(fr.method(local=ONE_STEP, fraction=1.0, private="own"), three())
    # An own number of a client moves by its whole gradient, which is zero at the same place.
    np.testing.assert_allclose(found, joint_optimum(SHARES), atol=1e-5)


def test_a_head_that_is_trained_first_has_the_same_rest():
    algorithm = fr.method(fr.Change(private=Private(("own",), first=5)), local=ONE_STEP, fraction=1.0)
    np.testing.assert_allclose(ends(algorithm, three()), joint_optimum(SHARES), atol=1e-5)


def test_without_a_coupling_everybody_ends_at_its_own_optimum_after_any_number_of_steps():
    diagonal = [np.diag([2.0, 1.0, 3.0])] * 3
    federation = Federation.split(quadratic_of(diagonal, CENTRES, SIZES), Natural())
    engine = Inline(federation, Task.of(TwoPartModel(), federation))
    found = ends(fr.method(local=Sgd(steps=5, batch=0, lr=0.2), fraction=1.0, private="own"), engine, 100)
    common = sum(share * centre[0] for share, centre in zip(SHARES, CENTRES, strict=True))
    np.testing.assert_allclose(found, [common, *(number for centre in CENTRES for number in centre[1:])], atol=1e-5)


@pytest.mark.parametrize("change", [scaffold(), scaffold(option="I"), feddyn(alpha=2.0)], ids=["II", "I", "feddyn"])
def test_methods_that_take_drift_away_end_at_the_joint_optimum_after_many_steps(change):
    algorithm = fr.method(change, local=Sgd(steps=5, batch=0, lr=0.1), fraction=1.0, private="own")
    np.testing.assert_allclose(ends(algorithm, three(), 200), joint_optimum(np.full(3, 1 / 3)), atol=1e-4)


def test_a_chain_passes_on_what_is_common_and_nothing_else():
    engine, local = three(), Sgd(steps=3, batch=0, lr=0.1)
    algorithm = fr.method(fedcyclic(), local=local, fraction=1.0, private="own")
    common, own = np.zeros(1), [np.zeros(2) for _ in range(3)]
    for state in train(algorithm, engine, rounds=4):
        _, order = fr.seeds.rng(0, "plan", state.round).spawn(2)
        for client in order.permutation([0, 1, 2]):
            w = np.concatenate((common, own[client]))
            w = np.linalg.matrix_power(np.eye(3) - 0.1 * MATRICES[client], 3) @ (w - CENTRES[client]) + CENTRES[client]
            common, own[client] = w[:1], w[1:]
        predictor = deployed(state, algorithm, engine)
        np.testing.assert_allclose(predictor.common.numpy(), [*common, 0, 0], atol=1e-5)  # the own ones as they began
        for client in range(3):
            np.testing.assert_allclose(predictor.for_client(client).params.numpy()[1:], own[client], atol=1e-5)


# --- FedBN, FedPer and FedRep -----------------------------------------------------------------------------------------


def pictures(seed: int = 0) -> Federation:
    """Two clients of unlike size whose inputs have unlike scales."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(30, 3, generator=generator)
    y = (x[:, 0] > 0).long()
    x[12:] = 4 * x[12:] + 3
    examples = Examples(x, y)
    return Federation.of(Source("rows", examples, examples, classes=2), [np.arange(12), np.arange(12, 30)])


def by_hand(networks: list[nn.Module], federation: Federation, rounds: int, public) -> None:
    """Two steps on everything at each client, then the mean by examples of what is public."""
    for _ in range(rounds):
        for client, network in enumerate(networks):
            network.train()
            x, y = federation.client(client).take(torch.arange(federation.sizes[client]), None)
            for _ in range(2):
                network.zero_grad()
                nn.functional.cross_entropy(network(x), y).backward()
                with torch.no_grad():
                    for parameter in network.parameters():
                        parameter -= 0.1 * parameter.grad
        with torch.no_grad():
            shares = [size / sum(federation.sizes) for size in federation.sizes]
            for name, _ in networks[0].named_parameters():
                if public(name):
                    tensors = [network.get_parameter(name) for network in networks]
                    mean = sum(share * tensor for share, tensor in zip(shares, tensors, strict=True))
                    for tensor in tensors:
                        tensor.copy_(mean)


@pytest.mark.parametrize(("change", "stays"), [(fedbn(), "body.2."), (fedper(), "head.")], ids=["fedbn", "fedper"])
def test_the_rest_is_what_it_is_where_the_part_is_averaged_nowhere(change, stays):
    federation = pictures()
    engine = Inline(federation, Task.of(MlpNorm(hidden=(4,)), federation), 3)
    algorithm = fr.method(change, local=Sgd(steps=2, batch=0, lr=0.1), fraction=1.0)
    networks, workspace = [engine.task.network() for _ in range(2)], Workspaces(engine.task).main
    workspace.load(engine.task.init(3), training=False)
    for network in networks:
        network.load_state_dict(workspace.network.state_dict())
    by_hand(networks, federation, 3, lambda name: not name.startswith(stays))
    *_, state = train(algorithm, engine, rounds=3)
    predictor = deployed(state, algorithm, engine)
    for client, network in enumerate(networks):
        workspace.load(predictor.for_client(client).params, training=False)
        found, expected = workspace.network.state_dict(), network.state_dict()
        for name in dict(network.named_parameters()):
            torch.testing.assert_close(found[name], expected[name], atol=1e-5, rtol=1e-4)
        if stays == "body.2.":
            for name in ("body.2.running_mean", "body.2.running_var", "body.2.num_batches_tracked"):
                torch.testing.assert_close(found[name], expected[name], atol=1e-5, rtol=1e-4)


def test_fedrep_trains_the_head_alone_and_then_the_body_alone():
    """By hand: two steps of the head, one of the body with that head."""
    federation = pictures()
    engine = Inline(federation, Task.of(Mlp(hidden=(4,)), federation), 3)
    algorithm = fr.method(fedrep(head_epochs=2), local=Sgd(batch=0, lr=0.1), fraction=1.0)
    (state,) = train(algorithm, engine, rounds=1)
    assert state.log.examples == (2 + 1) * 30
    predictor = deployed(state, algorithm, engine)
    bodies = []
    for client in range(2):
        workspace = Workspaces(engine.task).main
        workspace.load(engine.task.init(3), training=True)
        x, y = federation.client(client).take(torch.arange(federation.sizes[client]), None)
        body, head = list(workspace.network.body.parameters()), list(workspace.network.head.parameters())
        for part in (head, head, body):
            grads = torch.autograd.grad(nn.functional.cross_entropy(workspace.network(x), y), part)
            with torch.no_grad():
                for parameter, grad in zip(part, grads, strict=True):
                    parameter -= 0.1 * grad
        found = engine.task.layout.pieces(predictor.for_client(client).params)
        torch.testing.assert_close(found["head.weight"], workspace.network.head.weight.detach(), atol=1e-6, rtol=1e-5)
        bodies.append(workspace.network.body[1].weight.detach().clone())
    mean = 12 / 30 * bodies[0] + 18 / 30 * bodies[1]
    torch.testing.assert_close(found["body.1.weight"], mean, atol=1e-6, rtol=1e-5)


# --- laws, engines, traffic -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation.split(digits(), Dirichlet(alpha=0.3, deal="classes"), 8, 1)


LOCAL = Sgd(batch=16, lr=0.1, momentum=0.5)


def test_private_nothing_is_the_plain_method():
    assert fr.method(fedseq(max_clients=3), local=LOCAL, private=()) == fr.method(fedseq(max_clients=3), local=LOCAL)
    assert fr.method(local=LOCAL, private=None) == fr.method(local=LOCAL)
    assert fr.method(local=LOCAL, private="norm") == fr.method(fedbn(), local=LOCAL)
    assert fr.method(local=LOCAL, private=("head",)) == fr.method(fedper(), local=LOCAL)


def test_one_client_alone_trains_as_it_would_with_everything_public(federation):
    """Nobody else is there, so it makes no difference where the head is kept."""
    alone = federation.pooled()
    engine = Inline(alone, Task.of(Mlp(hidden=(8,)), alone), 1)
    *_, plain = train(fr.method(local=LOCAL, fraction=1.0), engine, rounds=3)
    algorithm = fr.method(fedper(), local=LOCAL, fraction=1.0)
    *_, own = train(algorithm, engine, rounds=3)
    assert torch.equal(deployed(own, algorithm, engine).for_client(0).params, deployed(plain).params)
    assert not torch.equal(deployed(own).params, deployed(plain).params)


@pytest.mark.parametrize("change", [fedper(), fedrep(head_epochs=2)], ids=["fedper", "fedrep"])
def test_stacked_visits_are_those_that_are_made_alone(change, federation):
    task = Task.of(Mlp(hidden=(8,)), federation)
    algorithm = fr.method(change, fedseq(max_clients=2), local=LOCAL, fraction=1.0)
    assert algorithm.update.stacks(task)
    found = []
    for engine in (Inline(federation, task, 1), Stacked(federation, task, 1)):
        *_, state = train(algorithm, engine, rounds=2)
        found.append(deployed(state, algorithm, engine).vectors)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=5e-4, rtol=1e-3)


def test_only_what_is_public_counts_as_traffic(federation):
    task = Task.of(Mlp(hidden=(8,)), federation)
    engine = Inline(federation, task)
    head = 8 * 10 + 10
    (plain,) = train(fr.method(local=LOCAL, fraction=1.0), engine, rounds=1)
    (own,) = train(fr.method(fedper(), local=LOCAL, fraction=1.0), engine, rounds=1)
    for way in ("server_to_client", "client_to_server"):
        assert plain.log.bytes[way] - own.log.bytes[way] == 8 * 4 * head
    (chain,) = train(fr.method(fedcyclic(), fedper(), local=LOCAL, fraction=1.0), engine, rounds=1)
    assert chain.log.bytes["client_to_client"] == 7 * 4 * (64 * 8 + 8)
    (control,) = train(fr.method(scaffold(), fedper(), local=Sgd(lr=0.1), fraction=1.0), engine, rounds=1)
    assert control.log.bytes["client_to_server"] == 8 * 2 * 4 * (64 * 8 + 8)


def test_nothing_of_the_part_is_in_what_a_client_sends(federation):
    task = Task.of(Mlp(hidden=(8,)), federation)
    (place,) = task.places(("head",))
    algorithm = fr.method(scaffold(), fedper(), local=Sgd(lr=0.1), fraction=1.0)
    engine = Inline(federation, task)
    before = start(algorithm, engine)
    planned = algorithm.plan(before, fr.seeds.rng(0, "plan", 1))
    for outcome in engine.run(algorithm.update, planned.chains, before.shared, 1):
        assert torch.equal(outcome.baton.params[place], before.batons[0].params[place])
        assert not outcome.reports[0].uplink["control"][place].any()
        assert outcome.reports[0].uplink["control"].any()


def test_the_virtual_clock_moves_by_what_is_public(federation):
    engine = Inline(federation, Task.of(Mlp(hidden=(8,)), federation))
    slow = Latency(speed=Same(1e12), bandwidth=Same(1e-6))
    clocks = []
    for changes in ((), (fedper(),)):
        (state,) = train(fr.method(*changes, local=LOCAL, fraction=1.0), engine, rounds=1, latency=slow)
        clocks.append(state.clock)
    whole = 64 * 8 + 8 + 8 * 10 + 10
    assert clocks[1] / clocks[0] == pytest.approx((64 * 8 + 8) / whole, rel=1e-3)


def test_a_trait_that_would_send_the_part_is_refused(federation):
    engine = Inline(federation, Task.of(Mlp(hidden=(8,)), federation))
    weights = ClassifierWeights(epochs=1, layers="last")
    grouper, distance = fr.plans.GROUPERS["greedy"](), fr.plans.DISTANCES["cosine"]()
    plan = fedseq(traits=weights, grouper=grouper, distance=distance, groups=4)
    start(fr.method(plan, local=LOCAL), engine)
    with pytest.raises(BadInput, match=r"ClassifierWeights sends head\.weight, and that stays at home"):
        start(fr.method(plan, fedper(), local=LOCAL), engine)
    start(fr.method(plan, local=LOCAL, private="body.1"), engine)


def test_a_client_that_never_trained_has_the_common_model(federation):
    engine = Inline(federation, Task.of(Mlp(hidden=(8,)), federation))
    algorithm = fr.method(fedper(), local=LOCAL, fraction=0.25)
    (state,) = train(algorithm, engine, rounds=1)
    predictor = deployed(state, algorithm, engine)
    assert sorted(predictor.own) == list(state.participants)
    absent = next(client for client in range(8) if client not in state.participants)
    assert predictor.for_client(absent).params is predictor.common
    memories = engine.memories()[1]
    assert all(size_of(memory[PRIVATE]) == 4 * (8 * 10 + 10) for memory in memories.values())


# --- which parts ------------------------------------------------------------------------------------------------------


class Timm(nn.Module):
    """A network that says what its head is, as timm's do, though another linear layer comes after it."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier, self.embed, self.norm = nn.Linear(4, 2), nn.Linear(3, 4), nn.LayerNorm(4)

    def get_classifier(self) -> nn.Module:
        return self.classifier

    def forward(self, x):
        return self.classifier(self.norm(self.embed(x)))


def chosen(network: nn.Module, *patterns: str) -> set[str]:
    layout = Layout.of(network)
    found = places(layout, parts_of(network), patterns)
    return {e.name for e in layout.entries if any(p.start <= e.start and e.start + e.size <= p.stop for p in found)}


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (("norm",), {"norm.weight", "norm.bias"}),
        (("head",), {"classifier.weight", "classifier.bias"}),
        (("embed",), {"embed.weight", "embed.bias"}),
        (("*.bias",), {"classifier.bias", "embed.bias", "norm.bias"}),
        (("embed.weight", "norm"), {"embed.weight", "norm.weight", "norm.bias"}),
    ],
)
def test_parts_are_found_by_role_and_by_name(patterns, expected):
    assert chosen(Timm(), *patterns) == expected


def test_the_head_of_a_plain_network_is_its_last_linear_layer():
    assert chosen(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), "head") == {"2.weight", "2.bias"}


@pytest.mark.parametrize(
    ("private", "said"),
    [
        ("body.7", r"nothing in the model is called 'body\.7': it has body\.1\.weight, "),
        ("norm", "no normalisation layer of the model trains"),
        ("*", "nothing would be left to learn together"),
    ],
)
def test_parts_that_are_not_there_or_are_everything_are_refused(private, said, federation):
    with pytest.raises(BadInput, match=said):
        adapted(fr.method(private=private), Task.of(Mlp(), federation))


def test_a_frozen_head_cannot_stay_at_home():
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    network[2].requires_grad_(False)
    with pytest.raises(BadInput, match="no head that trains"):
        adapted(fr.method(fedper()), Task(Own(network), (3,), 2))


def test_the_places_between_are_the_rest():
    assert between([slice(2, 4), slice(6, 9)], 8) == (slice(0, 2), slice(4, 6))
    assert between([slice(0, 8)], 8) == ()
    assert between([], 3) == (slice(0, 3),)


def test_two_methods_that_both_say_what_stays_at_home_are_refused():
    with pytest.raises(BadInput, match="both say what stays at home"):
        fr.method(fedbn(), fedper())
    with pytest.raises(BadInput, match="goes together with no other"):
        fr.method(fr.algorithms.centralized(), private="head")


def test_every_trait_says_what_it_tells_of_the_model(federation):
    task = Task.of(Mlp(hidden=(8,)), federation)
    assert ClassifierWeights(layers="all").tells(task) == ("body.1.weight", "head.weight")
    assert set(ClassifierWeights(layers="model").tells(task)) == {
        *("body.1.weight", "body.1.bias", "head.weight", "head.bias")
    }
    assert Trait.tells(ClassifierWeights(), task) == ()
