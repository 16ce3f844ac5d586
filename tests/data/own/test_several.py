"""Several inputs as arrays, frames, transforms of one's own, class weights."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pandas
import pytest
import torch
from torch import nn

import fedrelay as fr
from fedrelay import BadInput, Sgd, Task
from fedrelay.algorithms import fedavg
from fedrelay.data import Federation, PerExample, class_weights, from_arrays
from fedrelay.engines import Inline, Pool
from fedrelay.models import Logistic, Own

METHOD = fr.method(fedavg(), local=Sgd(lr=0.1, epochs=2, batch=4), fraction=1.0)
RNG = np.random.default_rng(4)
X, Y = RNG.normal(size=(30, 6)).astype(np.float32), np.arange(30) % 3
CUTS = {"north": slice(0, 11), "south": slice(11, 30)}


def trained(federation: Federation, model, engine=Inline, **options) -> torch.Tensor:
    runner = engine(federation, Task.of(model, federation), 2, **options)
    *_, state = fr.train(METHOD, runner, rounds=2)
    runner.close()
    return fr.deployed(state, METHOD).vectors[0]


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(2, 3)

    def forward(self, scan, age):
        return self.left(scan) + self.right(age)


class One(Two):
    def forward(self, both):
        return self.left(both[:, :4]) + self.right(both[:, 4:])


def own(network: type[nn.Module]) -> Own:
    torch.manual_seed(0)
    return Own(network())


@pytest.mark.parametrize("kind", ["tuple", "dict"])
def test_several_arrays_train_as_one_array_that_holds_them_all(kind):
    def inputs(x):
        return (x[:, :4], torch.from_numpy(x[:, 4:])) if kind == "tuple" else {"scan": x[:, :4], "age": x[:, 4:]}

    expected = from_arrays({name: (X[cut], Y[cut]) for name, cut in CUTS.items()})
    found = from_arrays({name: (inputs(X[cut]), Y[cut]) for name, cut in CUTS.items()})
    assert (found.names, found.fingerprint) == (expected.names, expected.fingerprint)
    model = trained(expected, own(One))
    assert torch.equal(trained(found, own(Two)), model)
    assert torch.equal(trained(found, own(Two), Pool, workers=2), model)


def test_images_among_several_inputs_are_taken_with_their_channels_first():
    images = np.arange(2 * 5 * 4 * 3, dtype=np.uint8).reshape(2, 5, 4, 3)
    federation = from_arrays(
        [({"scan": images, "age": np.ones((2, 1))}, [0, 1])], test=({"scan": images, "age": [[1.0], [2.0]]}, [0, 1])
    )
    x, _ = federation.source.train.take(slice(0, 2))
    assert np.allclose(x["scan"].numpy(), images.transpose(0, 3, 1, 2) / 127.5 - 1, atol=1e-6)
    assert federation.source.train.shape == {"scan": (3, 5, 4), "age": (1,)}


def test_rows_in_a_tuple_are_rows():
    federation = from_arrays([(tuple(torch.from_numpy(X[:5])), tuple(Y[:5].tolist()))], test=(X, Y))
    assert federation.source.train.shape == (6,)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"scan": X[:5, :4], "age": X[:4, 4:]}, r"south: expected the same number of rows everywhere.*\[4, 5\]"),
        ({"scan": X[:5, :4]}, r"south: expected inputs scan \(4,\) of float32, age \(2,\) of float32 .* as in north"),
        ({"scan": X[:5, :4], "age": X[:5] * np.nan}, r"south, inputs 'age': expected numbers, found 30 of 30"),
        ({"scan": X[:5, :4], "age": np.array(["old"] * 5)}, r"south: expected inputs 'age' to be numbers"),
    ],
)
def test_several_inputs_that_are_unlike_are_refused_by_name(bad, message):
    good = ({"scan": X[:5, :4], "age": X[:5, 4:]}, Y[:5])
    with pytest.raises(BadInput, match=message):
        from_arrays({"north": good, "south": (bad, Y[:5])})


# --- frames ----------------------------------------------------------------------------------------------------------


def test_the_columns_of_frames_go_by_name():
    names = list("abcdef")
    frames = {name: (pandas.DataFrame(X[cut], columns=names), pandas.Series(Y[cut])) for name, cut in CUTS.items()}
    x, y = frames["south"]
    frames["south"] = (x[names[::-1]], y)
    expected = from_arrays({name: (X[cut], Y[cut]) for name, cut in CUTS.items()})
    assert torch.equal(from_arrays(frames).source.train.x, expected.source.train.x)
    tested = from_arrays(frames, test=(pandas.DataFrame(X, columns=names)[names[::-1]], Y))
    assert torch.equal(tested.test.x, torch.from_numpy(X))


def test_polars_frames_are_taken_too():
    polars = pytest.importorskip("polars")
    frames = {name: (polars.DataFrame(X[cut], schema=list("abcdef")), Y[cut]) for name, cut in CUTS.items()}
    expected = from_arrays({name: (X[cut], Y[cut]) for name, cut in CUTS.items()})
    assert torch.equal(from_arrays(frames).source.train.x, expected.source.train.x)


def test_a_frame_with_other_columns_is_refused_by_name():
    north, south = pandas.DataFrame(X[:5, :2], columns=["a", "b"]), pandas.DataFrame(X[:5, :2], columns=["a", "c"])
    with pytest.raises(
        BadInput, match=r"own, south: expected the columns of north \(a, b\), found a frame without \['b"
    ):
        from_arrays({"north": (north, Y[:5]), "south": (south, Y[:5])})


# --- transforms ------------------------------------------------------------------------------------------------------


def shaken(x: torch.Tensor) -> torch.Tensor:
    return x + 0.1 * torch.randn(x.shape) + 0.1 * random.random()


@dataclass(frozen=True)
class Add:
    """Adds a constant to channel 0, to see what is done to which."""

    amount: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        assert x.shape == (3, 5, 4)
        x = x.clone()
        x[0] += self.amount
        return x


def test_a_transform_of_ones_own_draws_from_our_seeds_on_every_engine():
    pairs = {name: (X[cut], Y[cut]) for name, cut in CUTS.items()}
    federation = from_arrays(pairs, transform=PerExample(shaken))
    alone = trained(federation, Logistic())
    random.seed(5)
    assert torch.equal(trained(federation, Logistic(), Pool, workers=2), alone)
    assert not torch.equal(trained(from_arrays(pairs), Logistic()), alone)


def test_a_transform_of_one_example_gets_images_with_their_channels_first():
    images = np.zeros((4, 5, 4, 3), np.float32)
    federation = from_arrays([(images, [0, 1, 0, 1])], transform=PerExample(Add(1.0), test=Add(2.0)))
    x, _ = federation.source.train.take(torch.arange(2), np.random.default_rng(0))
    assert (x[:, 0] == 1).all()
    assert (x[:, 1:] == 0).all()
    assert (federation.test.take(slice(0, 1))[0][:, 0] == 2).all()


def test_a_transform_that_returns_no_tensor_is_refused():
    federation = from_arrays([(X, Y)], transform=PerExample(str))
    with pytest.raises(BadInput, match=r"must return a tensor, found a str"):
        federation.source.train.take(slice(0, 1), np.random.default_rng(0))


# --- class weights ---------------------------------------------------------------------------------------------------


def test_with_class_weights_every_class_weighs_the_same_and_an_example_one_on_average():
    x, y = np.zeros((8, 2), np.float32), np.array([0] * 6 + [1] * 2)
    federation = from_arrays({"north": (x[:6], y[:6]), "south": (x[6:], y[6:])}, test=(x, y))
    weights = class_weights(federation)
    assert torch.allclose(weights, torch.tensor([8 / 12, 8 / 4]))
    assert float(weights[y].mean()) == pytest.approx(1.0)


def test_class_weights_of_balanced_classes_are_one():
    federation = from_arrays([(X, Y)], test=(X, Y))
    assert torch.equal(class_weights(federation), torch.ones(3))


def test_a_class_that_nobody_has_and_examples_without_classes_are_refused():
    with pytest.raises(BadInput, match=r"no client has an example of class 3"):
        class_weights(from_arrays([(X, Y)], classes=4))
    with pytest.raises(BadInput, match=r"class weights need one class per example"):
        class_weights(fr.data.from_datasets([[(np.zeros(2), 0.5)] * 4]))


def test_data_without_classes_is_described_without_them():
    federation = fr.data.from_datasets([[(np.zeros(2), 0.5)] * 4])
    assert fr.data.describe(federation)["mix"] is None
    assert federation.classes_of_clients() is None
