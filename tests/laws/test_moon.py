"""MOON: its contrast and the gradient of it against the paper's formula in plain torch, and what clients keep."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, adapted, advance, deployed, start, train
from fedrelay.algorithms import fedavg, fedseq, moon
from fedrelay.algorithms.moon import Contrast
from fedrelay.data import Dirichlet, digits, quadratic
from fedrelay.data.partitions import Natural
from fedrelay.engines import Inline
from fedrelay.models import Mlp, Network, Own, Quadratic
from fedrelay.tasks import Workspaces
from fedrelay.types import Baton, Visit

LOCAL = Sgd(batch=16, lr=0.1)
TWO_STEPS = Sgd(steps=2, batch=0, lr=0.5)


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation.split(digits(), Dirichlet(alpha=0.3, deal="classes"), 8, 1)


@pytest.fixture
def engine(federation) -> Inline:
    return Inline(federation, Task.of(Mlp(hidden=(6,)), federation), 1)


def models(algorithm, engine, rounds=3):
    return [deployed(state).params for state in train(algorithm, engine, rounds=rounds)]


def visit_to(engine: Inline, client: int, **memory: torch.Tensor) -> Visit:
    return Visit(engine.federation.client(client), engine.task, memory, {}, 2, 0, 1, Workspaces(engine.task))


# --- the formula


def features(w: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    first, bias, *_ = w.values()
    return torch.relu(x @ first.T + bias)


def cosine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a * b).sum(1) / (a.square().sum(1).sqrt() * b.square().sum(1).sqrt())


def contrast(z: torch.Tensor, near: torch.Tensor, far: torch.Tensor, temperature: float) -> torch.Tensor:
    """-log(e^(cos(z, near)/τ) / (e^(cos(z, near)/τ) + e^(cos(z, far)/τ))), the mean over the batch (Eq. 3)."""
    up, down = torch.exp(cosine(z, near) / temperature), torch.exp(cosine(z, far) / temperature)
    return -torch.log(up / (up + down)).mean()


def steps_by_hand(received, previous, x, y, *, mu, temperature, lr=0.5, steps=2):
    """The weights after plain steps on all examples, and the mean of the losses on the way, in float64."""
    fixed, old = ({name: piece.double() for name, piece in w.items()} for w in (received, previous))
    near, far = features(fixed, x), features(old, x)
    assert float(near.norm(dim=1).min()) > 0
    assert float(far.norm(dim=1).min()) > 0
    own, losses = fixed, []
    for _ in range(steps):
        leaves = {name: piece.clone().requires_grad_() for name, piece in own.items()}
        z, (*_, head, bias) = features(leaves, x), leaves.values()
        logits = z @ head.T + bias
        loss = (logits.logsumexp(1) - logits[torch.arange(len(y)), y]).mean()
        loss = loss + mu * contrast(z, near, far, temperature)
        losses.append(loss.item())
        slopes = torch.autograd.grad(loss, list(leaves.values()))
        own = {name: (piece - lr * slope).detach() for (name, piece), slope in zip(leaves.items(), slopes, strict=True)}
    return own, sum(losses) / len(losses)


@pytest.mark.parametrize(("mu", "temperature"), [(1.0, 0.5), (5.0, 0.5), (2.0, 0.1)])
def test_two_steps_follow_the_loss_and_the_contrast_of_the_paper(engine, mu, temperature):
    """Two, because in the first one the model in training is the received one, where nothing draws it there."""
    task, pieces = engine.task, engine.task.layout.pieces
    received, previous = task.init(1), task.init(2)
    visit = visit_to(engine, 0, previous=previous)
    x, y = visit.client.take(torch.arange(visit.client.size), None)
    local = fr.method(moon(mu=mu, temperature=temperature), local=TWO_STEPS).update
    after, _, report = local(Baton(received), visit)
    settings = {"mu": mu, "temperature": temperature}
    expected, loss = steps_by_hand(pieces(received), pieces(previous), x.flatten(1).double(), y, **settings)
    for name, piece in pieces(after.params).items():
        torch.testing.assert_close(piece.double(), expected[name], atol=2e-6, rtol=1e-5)
    assert report.metrics["loss"] == pytest.approx(loss, rel=1e-5)
    without, _, _ = TWO_STEPS(Baton(received), visit)
    assert float((without.params - after.params).abs().max()) > 1e-3


# --- FedAvg, first visits


def test_moon_of_weight_zero_is_fedavg_to_the_bit(engine):
    plain = models(fr.method(fedavg(), local=LOCAL, fraction=1.0), engine)
    same = models(fr.method(moon(mu=0.0), local=LOCAL, fraction=1.0), engine)
    other = models(fr.method(moon(mu=1.0), local=LOCAL, fraction=1.0), engine)
    assert all(torch.equal(a, b) for a, b in zip(plain, same, strict=True))
    assert torch.equal(plain[0], other[0])  # nobody has a previous model in the first round
    assert not torch.equal(plain[1], other[1])


def test_a_client_that_comes_for_the_first_time_trains_without_the_contrast(engine):
    received = Baton(engine.task.init(1))
    plain, _, _ = LOCAL(received, visit_to(engine, 3))
    first, memory, _ = fr.method(moon(mu=5.0), local=LOCAL).update(received, visit_to(engine, 3))
    assert torch.equal(first.params, plain.params)
    again, _, _ = fr.method(moon(mu=5.0), local=LOCAL).update(received, visit_to(engine, 3, **memory))
    assert not torch.equal(again.params, plain.params)


def test_a_previous_model_that_is_the_received_one_changes_nothing(engine):
    """Then the contrast is constant, which is why a first visit can do without it."""
    received = engine.task.init(1)
    visit = visit_to(engine, 0, previous=received)
    found, _, report = fr.method(moon(mu=5.0), local=TWO_STEPS).update(Baton(received), visit)
    plain, _, alone = TWO_STEPS(Baton(received), visit)
    torch.testing.assert_close(found.params, plain.params, atol=1e-6, rtol=0)
    assert report.metrics["loss"] == pytest.approx(alone.metrics["loss"] + 5.0 * 0.6931472, rel=1e-5)


# --- what clients keep


def test_every_client_keeps_the_model_it_sent_and_nothing_more_travels(engine):
    algorithm = fr.method(moon(), local=LOCAL, fraction=1.0)
    assert algorithm.update.keeps == ("previous",)
    state = start(algorithm, engine)
    for _ in range(3):
        state = advance(algorithm, engine, state)
        kept = {client: memory["previous"] for client, memory in engine.memories()[1].items()}
        sizes = torch.tensor([float(size) for size in engine.sizes])
        mean = sum(kept[client] * share for client, share in enumerate(sizes / sizes.sum()))
        torch.testing.assert_close(state.batons[0].params, mean, atol=1e-6, rtol=1e-5)  # FedAvg of what they keep
        model = len(state.batons[0].params) * 4
        assert state.log.bytes == {
            "server_to_client": 8 * model,
            "client_to_server": 8 * model,
            "client_to_client": 0,
        }


def test_only_clients_that_were_there_keep_a_model(engine):
    algorithm = fr.method(moon(), local=LOCAL, fraction=0.25)
    state = advance(algorithm, engine, start(algorithm, engine))
    assert set(engine.memories()[1]) == set(state.participants)
    assert len(state.participants) == 2


def test_along_a_chain_the_received_model_is_the_previous_clients(engine):
    algorithm = fr.method(fedseq(max_clients=4), moon(mu=1.0), local=LOCAL, fraction=1.0)
    states = list(train(algorithm, engine, rounds=3))
    plain = models(fr.method(fedseq(max_clients=4), local=LOCAL, fraction=1.0), engine)
    assert torch.equal(deployed(states[0]).params, plain[0])
    assert not torch.equal(deployed(states[1]).params, plain[1])


class WithBuffers(Network):
    """Features that depend on running statistics."""

    def __init__(self) -> None:
        body = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.ReLU())
        super().__init__(body, nn.Linear(6, 10))


def test_of_a_model_with_buffers_they_are_kept_too(federation):
    engine = Inline(federation, Task.of(Own(WithBuffers()), federation), 1)
    layout = engine.task.layout
    assert layout.size > layout.trainable
    local = Sgd(steps=2, batch=16, lr=0.1)
    states = list(train(fr.method(moon(mu=5.0), local=local, fraction=1.0), engine, rounds=2))
    assert not any(state.log.drops for state in states)
    kept = engine.memories()[1][0]["previous"]
    assert len(kept) == layout.size
    assert float(layout.pieces(kept)["body.2.running_var"].min()) > 0
    plain = models(fr.method(local=local, fraction=1.0), engine, 2)
    assert torch.equal(deployed(states[0]).params, plain[0])
    assert not torch.equal(deployed(states[1]).params, plain[1])


# --- refusals


class Bare(nn.Module):
    """A network whose features cannot be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.flatten(1))


def test_a_model_without_features_is_refused(federation):
    algorithm = fr.method(moon(), local=LOCAL)
    bare = Task.of(Own(Bare()), federation)
    with pytest.raises(BadInput, match="MOON needs a model with features, and Bare has no body and head: mlp, lenet5"):
        adapted(algorithm, bare)
    with pytest.raises(BadInput, match="MOON needs a model with features"):
        start(algorithm, Inline(federation, bare))
    bowls = Federation.split(quadratic(clients=3), Natural())
    with pytest.raises(BadInput, match=r"MOON compares features, and the model Quadratic\(\) has none"):
        start(algorithm, Inline(bowls, Task.of(Quadratic(), bowls)))


def test_settings_out_of_range_are_refused():
    with pytest.raises(BadInput, match="mu must be at least 0, not -1"):
        moon(mu=-1.0)
    with pytest.raises(BadInput, match="temperature must be above 0, not 0"):
        moon(temperature=0.0)
    with pytest.raises(BadInput, match="two terms would both keep previous in the clients' memories"):
        fr.method(moon(mu=1.0), local=Sgd(terms=(Contrast(2.0),)))
