"""MA-Echo: projections at the clients, iterations at the server, and a rule for every part of a model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, train
from fedrelay.algorithms import fedseq, maecho
from fedrelay.algorithms.maecho import EchoMerge, Layer, Projections, Projector, by_class, free_of, layers_of, narrow
from fedrelay.data import Dirichlet, Examples, Iid, Source, digits
from fedrelay.engines import Inline
from fedrelay.models import Mlp, MlpNorm, Own, ResNet18, SmallCnn
from fedrelay.tasks import Workspaces
from fedrelay.types import Visit
from fedrelay.vectors import Entry

RIDGE = 0.01**0.8
OWN = [torch.tensor([[2.0, 5.0]]), torch.tensor([[6.0, -3.0]])]
FREE = [torch.diag(torch.tensor([0.0, 1.0])), torch.diag(torch.tensor([1.0, 0.0]))]
SHARES = [0.5, 0.5]


# --- the iterations


@pytest.mark.parametrize(
    ("iterations", "expected"), [(0, (4.0, 1.0)), (1, (2.5, -2.0)), (2, (2.25, -2.5)), (60, (2.0, -3.0))]
)
def test_two_clients_keep_what_their_own_inputs_need(iterations, expected):
    """Values computed outside this project: client 0 only sees the first input, client 1 only the second."""
    found = EchoMerge(1.0, iterations).drawn_together(OWN, FREE, SHARES)
    torch.testing.assert_close(found, torch.tensor([expected]))


@pytest.mark.parametrize("projection", [torch.eye(2), torch.zeros(2, 2)], ids=["all is free", "nothing is free"])
@pytest.mark.parametrize("step", [0.3, 1.0, 1.9])
def test_where_all_or_nothing_is_free_it_is_the_mean(projection, step):
    found = EchoMerge(step, 50).drawn_together(OWN, [projection, projection], SHARES)
    torch.testing.assert_close(found, torch.tensor([[4.0, 1.0]]))


def test_scaled_rows_move_by_the_step_and_equal_models_stay_finite():
    equal = EchoMerge(0.05, 300, scaled=True).drawn_together([OWN[0], OWN[0]], FREE, SHARES)
    torch.testing.assert_close(equal, OWN[0])
    merge = EchoMerge(0.05, 1, scaled=True)
    torch.testing.assert_close(merge.length(torch.tensor([[3.0, 4.0], [0.0, 0.0]])), torch.tensor([[0.6, 0.8], [0, 0]]))


@pytest.mark.parametrize("step", [2, 2.5, 0, -1, float("nan")])
def test_a_step_that_does_not_settle_is_refused(step):
    with pytest.raises(BadInput, match="step must be"):
        maecho(step=step)


# --- the projections


def test_projections_of_two_inputs_are_those_of_the_formula():
    """Values computed outside this project."""
    rows = torch.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    whole = torch.tensor([[0.0239313, -0.0233449], [-0.0233449, 0.0472763]], dtype=torch.float64)
    half = torch.tensor([[0.4269106, -0.1665999], [-0.1665999, 0.6747694]], dtype=torch.float64)
    torch.testing.assert_close(free_of(rows.T @ rows, RIDGE), whole, atol=1e-7, rtol=0)
    for share, expected in ((1.0, whole), (0.5, half)):
        found = torch.eye(2, dtype=torch.float64)
        narrow(found, rows, RIDGE, share)
        torch.testing.assert_close(found, expected, atol=1e-7, rtol=0)


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(5, 3),
        nn.Linear(5, 3, bias=False),
        nn.Conv2d(2, 3, 3, padding=1),
        nn.Conv2d(2, 3, (3, 2), stride=2, dilation=2, padding="valid", bias=False),
        nn.Conv2d(2, 3, 3, padding="same", padding_mode="reflect"),
    ],
    ids=str,
)
def test_what_a_layer_sees_times_its_weights_is_what_it_puts_out(module):
    """So a projection of what it sees says which changes of its weights do not matter."""
    vector = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])
    x = torch.randn(1, 2, 7, 6, generator=torch.Generator().manual_seed(0))
    x = x.flatten()[:5].reshape(1, 5) if isinstance(module, nn.Linear) else x
    shape, size = tuple(module.weight.shape), module.weight.numel()
    flat = Entry("weight", 0, shape) if len(shape) == 2 else Entry("weight", 0, (shape[0], size // shape[0]))
    bias = None if module.bias is None else Entry("bias", size, (shape[0],))
    layer = Layer("it", flat, bias)
    rows = Projector(layer, module, published=False)._rows(x)
    rows = rows if bias is None else torch.cat((rows, torch.ones(len(rows), 1)), 1)
    out = module(x).flatten(2)[0].T if x.ndim == 4 else module(x)
    torch.testing.assert_close(rows @ layer.matrix(vector).T, out)


def visited(task: Task, federation: Federation, variant: str = "intended") -> dict:
    visit = Visit(federation.client(0), task, {}, {}, 1, 0, 0, Workspaces(task))
    return Projections(variant).end(task.init(0), task.init(0), visit, steps=1.0, lr=0.1)[1]


@pytest.mark.parametrize("variant", ["intended", "published"])
def test_a_client_sends_projections_of_all_layers_but_the_last(variant):
    federation = Federation.split(digits(), Iid(), 4)
    for model in (SmallCnn((4,)), Mlp((12, 8))):
        task = Task.of(model, federation)
        sent = visited(task, federation, variant)
        assert sent["projections"].keys() == {layer.name for layer in layers_of(task)[0]}
        for layer in layers_of(task)[0]:
            values = torch.linalg.eigvalsh(sent["projections"][layer.name].double())
            assert len(values) == layer.inputs
            assert float(values[0]) > -1e-6
            assert float(values[-1]) < 1 + 1e-6
            assert float(values[0]) < 0.6  # the inputs that are there are taken out


def test_the_first_layer_is_projected_by_the_mean_inputs_of_batches_of_64():
    federation = Federation.split(digits(), Iid(), 4)
    task, client = Task.of(Mlp((8,)), federation), federation.client(0)
    x = client.take(torch.arange(client.size), None)[0].flatten(1).double()
    means = torch.stack([part.mean(0) for part in torch.split(x, 64)])
    means = torch.cat((means, torch.ones(len(means), 1, dtype=torch.float64)), 1)
    expected = torch.linalg.inv(torch.eye(65, dtype=torch.float64) + means.T @ means / RIDGE)
    found = visited(task, federation)["projections"]["body.1"]
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=0)


def test_how_much_is_sent_besides_the_model_is_as_counted_from_the_authors_networks():
    def squares(model, shape):
        task = Task(model, shape, 10)
        layers, head = layers_of(task)
        return sum((layer.inputs - (layer.bias is not None)) ** 2 for layer in layers), head.inputs - 1

    assert squares(Mlp((400, 200, 100)), (784,)) == (824_656 - 100**2, 100)  # theirs sends the last layer's too
    found, last = squares(ResNet18(), (3, 32, 32))
    assert round((found + last**2) / 1e6, 1) == 92.3


# --- every part of a model


def test_rows_of_the_last_layer_are_means_over_those_who_have_the_class():
    rows = [torch.tensor([[1.0], [2.0], [3.0], [4.0]]), torch.tensor([[5.0], [6.0], [7.0], [8.0]])]
    owned = [torch.tensor([2, 2, 1, 0], dtype=torch.uint8), torch.tensor([0, 2, 2, 0], dtype=torch.uint8)]
    assert by_class(rows, owned, published=False).flatten().tolist() == [1.0, 4.0, 5.0, 6.0]
    assert by_class(rows, owned, published=True).flatten().tolist() == [1.0, 4.0, 7.0, 0.0]


def one_round(model, *changes, clients=4):
    federation = Federation.split(digits(), Dirichlet(alpha=0.5), clients, 1)
    task = Task.of(model, federation)
    algorithm = fr.method(*changes, local=Sgd(lr=0.1, batch=16))
    (state,) = train(algorithm, Inline(federation, task, 1), rounds=1)
    return federation, task, state


def test_normalisation_is_the_mean_by_examples_and_layers_are_not():
    task, echo, plain = one_round(MlpNorm((8,)), maecho())[1:] + one_round(MlpNorm((8,)))[2:]
    ours, mean = (task.layout.pieces(fr.deployed(state).params) for state in (echo, plain))
    for name in ours:
        assert torch.equal(ours[name], mean[name]) is name.startswith("body.2"), name


def test_the_traffic_is_a_model_its_projections_and_two_bits_a_class_of_every_client():
    clients, model = 4, (64 * 8 + 8) + (8 * 10 + 10)
    _, _, state = one_round(Mlp((8,)), maecho(), clients=clients)
    assert state.log.bytes["client_to_server"] == clients * (4 * (model + 65**2) + 10)
    assert state.log.bytes["server_to_client"] == clients * 4 * model


def test_one_client_gets_its_own_model_back():
    federation = Federation.split(digits(), Iid(), 1)
    engine = Inline(federation, Task.of(SmallCnn((4,)), federation), 1)
    local = Sgd(lr=0.1, batch=64)
    (echo,) = train(fr.method(maecho(), local=local), engine, rounds=1)
    (plain,) = train(fr.method(local=local), engine, rounds=1)
    torch.testing.assert_close(fr.deployed(echo).params, fr.deployed(plain).params)


def test_a_layer_that_is_too_wide_and_chains_are_refused():
    x = torch.zeros(4, 1 << 14)
    wide = Source("wide", Examples(x, torch.tensor([0, 1, 0, 1])), Examples(x, torch.tensor([0, 1, 0, 1])), 2)
    federation = Federation.split(wide, Iid(), 2)
    with pytest.raises(BadInput, match=r"layer body\.1 has 16,385 inputs.*at most 16,384"):
        fr.adapted(fr.method(maecho()), Task.of(Mlp((2,)), federation))
    with pytest.raises(BadInput, match="both say who trains after whom"):
        fr.method(maecho(), fedseq())
    with pytest.raises(BadInput, match="variant must be"):
        maecho(variant="other")


def test_a_network_of_ones_own_without_such_layers_is_averaged():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.full((64, 10), 0.01))

        def forward(self, x):
            return x.flatten(1) @ self.weight

    found = [fr.deployed(one_round(Own(Scale()), *changes)[2]).params for changes in ((maecho(),), ())]
    assert torch.equal(*found)
