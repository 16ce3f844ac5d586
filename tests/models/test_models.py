"""The networks: their published sizes, their shapes, what they refuse, and that they live in one flat vector."""

from __future__ import annotations

import dataclasses
import pickle
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from fedrelay.errors import BadInput
from fedrelay.models import (
    MODELS,
    CharLstm,
    ClusteredCnn,
    FedelmyCnn,
    FemnistCnn,
    LeafCnn,
    LeNet5,
    Logistic,
    Mlp,
    MlpNorm,
    Model,
    Network,
    Own,
    PflCnn,
    Quadratic,
    ResNet18,
    SmallCnn,
    WordLstm,
)
from fedrelay.seeds import torch_seed
from fedrelay.vectors import Layout


def conv(channels: int, filters: int, kernel: int) -> int:
    return channels * filters * kernel * kernel + filters


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def normed(channels: int, filters: int, kernel: int) -> int:
    """A convolution without bias, then a normalisation with scale and shift."""
    return channels * filters * kernel * kernel + 2 * filters


def lstm(inputs: int, units: int, biases: int) -> int:
    """Four gates, each with a matrix from the input, one from the state, and its biases."""
    return 4 * (inputs * units + units * units + biases * units)


RESNET18 = (
    normed(3, 64, 3)
    + 4 * normed(64, 64, 3)
    + sum(normed(n // 2, n, 3) + 3 * normed(n, n, 3) + normed(n // 2, n, 1) for n in (128, 256, 512))
    + linear(512, 10)
)
COUNTS: list[tuple[Model, tuple[int, ...], int, int, int]] = [
    (Logistic(), (1, 28, 28), 10, 784 * 10 + 10, 7_850),
    (Mlp(), (1, 28, 28), 10, 784 * 50 + 50 + 50 * 10 + 10, 39_760),
    (Mlp(hidden=(200, 200)), (784,), 10, linear(784, 200) + linear(200, 200) + linear(200, 10), 199_210),
    (MlpNorm(), (1, 28, 28), 10, 784 * 50 + 50 + 2 * 50 + 50 * 10 + 10, 39_860),
    (Quadratic(), (12,), 1, 3, 3),
    (SmallCnn(), (1, 8, 8), 10, conv(1, 16, 3) + conv(16, 32, 3) + linear(32 * 2 * 2, 10), 6_090),
    (
        LeNet5(),
        (3, 32, 32),
        10,
        3 * 64 * 25 + 64 + 64 * 64 * 25 + 64 + 1600 * 384 + 384 + 384 * 192 + 192 + 192 * 10 + 10,
        797_962,
    ),
    (FemnistCnn(), (1, 28, 28), 62, conv(1, 32, 3) + conv(32, 64, 3) + linear(9216, 128) + linear(128, 62), 1_206_590),
    (LeafCnn(), (1, 28, 28), 62, conv(1, 32, 5) + conv(32, 64, 5) + linear(3136, 2048) + linear(2048, 62), 6_603_710),
    (
        ClusteredCnn(),
        (3, 32, 32),
        10,
        conv(3, 32, 3) + conv(32, 64, 3) + conv(64, 64, 3) + linear(4 * 4 * 64, 64) + linear(64, 10),
        122_570,
    ),
    (FedelmyCnn(), (3, 32, 32), 10, conv(3, 128, 3) + 2 * conv(128, 128, 3) + linear(4 * 4 * 128, 10), 319_242),
    (
        FedelmyCnn("domains"),
        (3, 32, 32),
        7,
        conv(3, 6, 5) + conv(6, 16, 5) + linear(5 * 5 * 16, 120) + linear(120, 84) + linear(84, 7),
        61_751,
    ),
    (
        FedelmyCnn("tiny"),
        (3, 64, 64),
        200,
        conv(3, 32, 3) + conv(32, 64, 3) + linear(16 * 16 * 64, 128) + linear(128, 200),
        2_142_472,
    ),
    (
        PflCnn(),
        (3, 32, 32),
        10,
        conv(3, 32, 3) + conv(32, 64, 3) + linear(14 * 14 * 64, 128) + linear(128, 10),
        1_626_442,
    ),
    (ResNet18(), (3, 32, 32), 10, RESNET18, 11_173_962),
    (ResNet18(norm="group"), (3, 32, 32), 10, RESNET18, 11_173_962),
    (CharLstm(), (80,), 80, 80 * 8 + lstm(8, 100, 2) + lstm(100, 100, 2) + linear(100, 80), 133_520),
    (WordLstm(), (20,), 10_004, 10_004 * 96 + lstm(96, 670, 2) + linear(670, 96) + linear(96, 10_004), 4_053_428),
]
SMALL: list[tuple[Model, tuple[int, ...], int]] = [
    (Logistic(), (2, 3, 3), 4),
    (Mlp(), (12,), 4),
    (MlpNorm(), (12,), 4),
    (MlpNorm(norm="layer"), (12,), 4),
    (Quadratic(), (12,), 1),
    (SmallCnn(), (1, 8, 8), 10),
    (LeNet5(), (1, 17, 20), 10),
    (FemnistCnn(), (1, 10, 13), 62),
    (FemnistCnn(relu="all"), (1, 10, 10), 62),
    (LeafCnn(), (1, 9, 8), 5),
    (ClusteredCnn(), (3, 22, 19), 10),
    (FedelmyCnn(), (3, 18, 22), 10),
    (FedelmyCnn("domains"), (3, 17, 16), 7),
    (FedelmyCnn("tiny"), (3, 9, 6), 5),
    (PflCnn(), (3, 11, 12), 10),
    (ResNet18(), (3, 12, 16), 10),
    (ResNet18(norm="group"), (1, 16, 12), 10),
    (CharLstm(), (7,), 30),
    (CharLstm(every_step=True), (7,), 30),
    (WordLstm(), (5,), 40),
]


def named(case: object) -> str | None:
    return repr(case) if dataclasses.is_dataclass(case) else None


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def inputs(model: Model, shape: tuple[int, ...], classes: int, batch: int = 3) -> torch.Tensor:
    """A batch as the data layer gives it: tokens, or numbers with images channels-last."""
    generator = torch.Generator().manual_seed(5)
    if isinstance(model, CharLstm | WordLstm):
        return torch.randint(0, classes, (batch, *shape), generator=generator)
    x = torch.randn(batch, *shape, generator=generator)
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def build(model: Model, shape: tuple[int, ...], classes: int, seed: int = 0) -> nn.Module:
    with torch_seed(seed, "model"):
        return model(shape, classes)


def loss_of(model: Model, network: nn.Module, x: torch.Tensor, classes: int) -> torch.Tensor:
    """With dropout from one seed, so that two networks drop the same units."""
    with torch_seed(1, "dropout"):
        output: torch.Tensor = network(x)
    if model.loss == "output":
        return output.mean()
    targets = torch.arange(output.numel() // classes) % classes
    return F.cross_entropy(output.reshape(-1, classes), targets)


@pytest.mark.parametrize(("model", "shape", "classes", "derived", "published"), COUNTS, ids=named)
def test_the_number_of_parameters_is_the_published_one(
    model: Model, shape: tuple[int, ...], classes: int, derived: int, published: int
) -> None:
    assert derived == published
    assert parameters(model(shape, classes)) == published


def test_the_word_lstm_is_the_tensorflow_one_but_for_a_second_bias_vector() -> None:
    tensorflow = 10_004 * 96 + lstm(96, 670, 1) + linear(670, 96) + linear(96, 10_004)
    assert tensorflow == 4_050_748  # Reddi et al. 2021, Table 9
    assert parameters(WordLstm()((20,), 10_004)) == tensorflow + 4 * 670


def test_fedgsp_counts_its_network_in_binary_millions() -> None:
    assert round(parameters(LeafCnn()((1, 28, 28), 62)) / 2**20, 1) == 6.3


def test_every_model_in_the_table_is_counted_and_run_here() -> None:
    assert {type(case[0]) for case in COUNTS} == set(MODELS.values())
    assert {type(case[0]) for case in SMALL} == set(MODELS.values())


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_a_frozen_dataclass_that_pickles(name: str) -> None:
    model = MODELS[name]()
    assert dataclasses.is_dataclass(model)
    assert type(model).__dataclass_params__.frozen
    assert pickle.loads(pickle.dumps(model)) == model
    assert hash(model) == hash(MODELS[name]())
    assert model.loss == ("output" if name == "quadratic" else "cross_entropy")
    assert "loss" not in {field.name for field in dataclasses.fields(model)}


@pytest.mark.parametrize(("model", "shape", "classes"), SMALL, ids=named)
def test_outputs_have_one_logit_per_class(model: Model, shape: tuple[int, ...], classes: int) -> None:
    output = build(model, shape, classes)(inputs(model, shape, classes))
    if isinstance(model, Quadratic):
        assert output.shape == (3,)
    elif isinstance(model, CharLstm | WordLstm) and model.every_step:
        assert output.shape == (3, *shape, classes)
    else:
        assert output.shape == (3, classes)


@pytest.mark.parametrize(("model", "shape", "classes"), [c for c in SMALL if c[0] != Quadratic()], ids=named)
def test_the_output_is_the_head_of_the_body(model: Model, shape: tuple[int, ...], classes: int) -> None:
    network = build(model, shape, classes).eval()
    assert isinstance(network, Network)
    assert isinstance(network.head, nn.Linear)
    assert network.head.out_features == classes
    x = inputs(model, shape, classes)
    features = network.body(x)
    torch.testing.assert_close(network(x), features @ network.head.weight.T + network.head.bias)


@pytest.mark.parametrize(("model", "shape", "classes"), SMALL, ids=named)
def test_gradients_in_the_flat_vector_are_those_of_the_free_network(
    model: Model, shape: tuple[int, ...], classes: int
) -> None:
    free = build(model, shape, classes)
    bound = deepcopy(free)
    layout = Layout.of(bound)
    vector, gradient = torch.full((layout.size,), torch.nan), torch.zeros(layout.trainable)
    layout.bind(bound, vector, gradient)
    x = inputs(model, shape, classes)
    expected = loss_of(model, free, x, classes)
    expected.backward()
    found = loss_of(model, bound, x, classes)
    found.backward()

    torch.testing.assert_close(found, expected)
    grads = {name: p.grad for name, p in free.named_parameters()}
    assert layout.trainable == parameters(free)
    for entry in layout.entries:
        if entry.start < layout.trainable:
            torch.testing.assert_close(entry.view(gradient), grads[entry.name], rtol=1e-3, atol=1e-5)
    assert gradient.norm() > 0
    buffers = dict(free.named_buffers())
    for entry in layout.entries:
        if entry.start >= layout.trainable and not entry.whole:  # running statistics were updated inside the vector
            torch.testing.assert_close(entry.view(vector), buffers[entry.name])


@pytest.mark.parametrize(("model", "shape", "classes"), SMALL, ids=named)
def test_a_step_on_the_flat_vector_moves_the_network(model: Model, shape: tuple[int, ...], classes: int) -> None:
    network = build(model, shape, classes)
    layout = Layout.of(network)
    vector, gradient = torch.empty(layout.size), torch.zeros(layout.trainable)
    layout.bind(network, vector, gradient)
    x = inputs(model, shape, classes)
    before = loss_of(model, network, x, classes)
    before.backward()
    step = 1e-3 / float(gradient.norm())
    vector[: layout.trainable].sub_(gradient, alpha=step)
    assert loss_of(model, network, x, classes) < before


@pytest.mark.parametrize(("model", "shape", "classes"), SMALL, ids=named)
def test_the_seed_of_the_caller_decides_the_initial_weights(model: Model, shape: tuple[int, ...], classes: int) -> None:
    def flat(seed: int) -> torch.Tensor:
        return nn.utils.parameters_to_vector(build(model, shape, classes, seed).parameters())

    assert torch.equal(flat(1), flat(1))
    assert isinstance(model, Quadratic) or not torch.equal(flat(1), flat(2))


@pytest.mark.parametrize(
    ("model", "shape"), [(FemnistCnn(), (1, 28, 28)), (PflCnn(), (3, 32, 32)), (ClusteredCnn(), (3, 32, 32))], ids=named
)
def test_dropout_is_on_in_training_and_off_in_evaluation(model: Model, shape: tuple[int, ...]) -> None:
    network = build(model, shape, 10)
    x = inputs(model, shape, 10)
    with torch_seed(2, "first"):
        first = network(x)
    with torch_seed(2, "second"):
        second = network(x)
        assert not torch.equal(first, second)
        network.eval()
        assert torch.equal(network(x), network(x))


@pytest.mark.parametrize(
    ("model", "shares"),
    [(FemnistCnn(), [0.25, 0.5]), (PflCnn(), [0.25, 0.5]), (ClusteredCnn(), [0.2, 0.2, 0.2])],
    ids=named,
)
def test_each_dropout_drops_the_published_share(model: Model, shares: list[float]) -> None:
    network = build(model, (3, 32, 32), 10)
    dropped: list[float] = []

    def watch(layer: nn.Module, args: tuple[torch.Tensor], output: torch.Tensor) -> None:
        dropped.append(float((output[args[0] != 0] == 0).float().mean()))

    for layer in network.modules():
        if isinstance(layer, nn.Dropout):
            layer.register_forward_hook(watch)
    with torch_seed(4, "dropout"):
        network(inputs(model, (3, 32, 32), 10, batch=64))
    assert dropped == pytest.approx(shares, abs=0.02)  # 64 examples x at least 64 units: 0.02 is 2.5 deviations


def test_dropout_of_zero_changes_nothing() -> None:
    for model in (ClusteredCnn(dropout=0), FemnistCnn(dropout=(0, 0))):
        network = build(model, (1, 28, 28), 10)
        x = inputs(model, (1, 28, 28), 10)
        torch.testing.assert_close(network(x), network.eval()(x))


# The networks once more, as the papers and their authors' code have them: ReLU before pooling, nothing in place.
# `w` gives weight and bias of the layers in turn.


def as_published(model: Model, x: torch.Tensor, w: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    def c(layer: int, x: torch.Tensor, padding: int = 0) -> torch.Tensor:
        return F.conv2d(x, *w[layer], padding=padding)

    def f(layer: int, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x.flatten(1), *w[layer])

    def relu_pool(x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(F.relu(x), 2)

    match model:
        case SmallCnn():
            return f(2, relu_pool(c(1, relu_pool(c(0, x, 1)), 1)))
        case LeNet5():
            return f(4, F.relu(f(3, F.relu(f(2, relu_pool(c(1, relu_pool(c(0, x)))))))))
        case LeafCnn():
            return f(3, F.relu(f(2, relu_pool(c(1, relu_pool(c(0, x, 2)), 2)))))
        case FemnistCnn(relu="one"):
            return f(3, f(2, relu_pool(c(1, c(0, x)))))
        case FemnistCnn() | PflCnn():
            return f(3, F.relu(f(2, relu_pool(c(1, F.relu(c(0, x)))))))
        case ClusteredCnn():
            return f(4, F.relu(f(3, c(2, relu_pool(c(1, relu_pool(c(0, x))))))))
        case FedelmyCnn(variant="domains"):
            return f(4, F.relu(f(3, F.relu(f(2, relu_pool(c(1, relu_pool(c(0, x)))))))))
        case FedelmyCnn(variant="tiny"):
            return f(3, F.relu(f(2, relu_pool(c(1, relu_pool(c(0, x, 1)), 1)))))
        case FedelmyCnn():
            return f(3, F.relu(c(2, relu_pool(c(1, relu_pool(c(0, x)))))))
    raise AssertionError(model)


@pytest.mark.parametrize(
    ("model", "shape", "classes"),
    [c for c in SMALL if len(c[1]) == 3 and type(c[0]).__name__.endswith(("Cnn", "5"))],
    ids=named,
)
def test_pooling_before_relu_gives_the_published_network_and_its_gradients(
    model: Model, shape: tuple[int, ...], classes: int
) -> None:
    network = build(model, shape, classes).double().eval()
    weights = [p.detach().clone().requires_grad_() for p in network.parameters()]
    x = inputs(model, shape, classes).double()
    expected = as_published(model, x, list(zip(weights[::2], weights[1::2], strict=True)))
    found = network(x)
    torch.testing.assert_close(found, expected)
    targets = torch.arange(3) % classes
    F.cross_entropy(expected, targets).backward()
    F.cross_entropy(found, targets).backward()
    for ours, theirs in zip(network.parameters(), weights, strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize(
    ("model", "smallest"),
    [
        (SmallCnn(), 4),
        (SmallCnn(channels=(2, 2, 2)), 8),
        (LeNet5(), 16),
        (FemnistCnn(), 6),
        (PflCnn(), 6),
        (LeafCnn(), 4),
        (ClusteredCnn(), 18),
        (FedelmyCnn(), 18),
        (FedelmyCnn("domains"), 16),
        (FedelmyCnn("tiny"), 4),
        (ResNet18(), 9),
    ],
    ids=named,
)
def test_the_smallest_image_works_and_a_smaller_one_is_refused_with_its_size(model: Model, smallest: int) -> None:
    network = model((1, smallest, smallest), 3)
    network(torch.rand(1, 1, smallest, smallest))
    for height, width in ((smallest - 1, smallest), (smallest, smallest - 1)):
        with pytest.raises(BadInput, match=rf"at least {smallest}x{smallest} pixels, found {height}x{width}"):
            model((1, height, width), 3)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 4), (-2,)])
def test_empty_inputs_are_refused_by_every_model(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match=name):
        MODELS[name]()(shape, 10)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "quadratic"])
def test_no_classes_are_refused_by_every_classifier(name: str) -> None:
    shape = (20,) if name.endswith("lstm") else (3, 32, 32)
    with pytest.raises(BadInput, match=f"{name} needs at least 1 class, found 0"):
        MODELS[name]()(shape, 0)


def test_images_are_refused_by_recurrent_networks_and_vectors_by_convolutions() -> None:
    with pytest.raises(BadInput, match=r"char_lstm takes sequences of tokens.*found inputs of shape \(3, 32, 32\)"):
        CharLstm()((3, 32, 32), 80)
    with pytest.raises(BadInput, match=r"lenet5 takes images .*found inputs of shape \(784,\)"):
        LeNet5()((784,), 10)


@pytest.mark.parametrize(
    ("model", "settings", "said"),
    [
        (Mlp, {"hidden": (50, 0)}, "hidden must be a whole number from 1, found 0"),
        (Mlp, {"hidden": 50}, r"hidden must be a list of whole numbers from 1, found 50"),
        (Mlp, {"hidden": (2.5,)}, "found 2.5"),
        (SmallCnn, {"channels": ()}, "at least one convolution"),
        (ClusteredCnn, {"dropout": 1.0}, "dropout must be at least 0 and below 1, found 1.0"),
        (FemnistCnn, {"dropout": (0.1,)}, "two shares"),
        (FemnistCnn, {"dropout": (0.1, -0.5)}, "found -0.5"),
        (FemnistCnn, {"relu": "none"}, "one of one, all, found 'none'"),
        (ResNet18, {"norm": "layer"}, "one of batch, group, found 'layer'"),
        (ResNet18, {"groups": 3}, "must divide the 64 channels"),
        (CharLstm, {"layers": 0}, "layers must be a whole number from 1, found 0"),
        (WordLstm, {"hidden": True}, "hidden must be a whole number"),
    ],
)
def test_impossible_settings_are_refused(model: Any, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        model(**settings)


def test_lists_are_as_good_as_tuples() -> None:
    assert Mlp(hidden=[20, 10]) == Mlp(hidden=(20, 10))
    assert FemnistCnn(dropout=[0.1, 0.2]) == FemnistCnn(dropout=(0.1, 0.2))


@given(d=st.integers(1, 6), rows=st.integers(1, 4), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_quadratic_is_half_the_squared_distance_in_the_metric_of_each_row(d: int, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, w = rng.normal(size=(rows, d, d)), rng.normal(size=(rows, d)), rng.normal(size=d)
    network = Quadratic()((d + d * d,), 1)
    assert [name for name, _ in network.named_parameters()] == ["w"]
    assert torch.equal(network.w, torch.zeros(d))
    network.double()
    with torch.no_grad():
        network.w.copy_(torch.from_numpy(w))
    losses = network(torch.from_numpy(np.concatenate([b, a.reshape(rows, -1)], axis=1)))
    expected = [0.5 * (w - b[i]) @ a[i] @ (w - b[i]) for i in range(rows)]
    np.testing.assert_allclose(losses.detach().numpy(), expected, atol=1e-12)
    losses.sum().backward()
    slope = sum(0.5 * (a[i] + a[i].T) @ (w - b[i]) for i in range(rows))
    np.testing.assert_allclose(network.w.grad.numpy(), slope, atol=1e-12)


@pytest.mark.parametrize("shape", [(1,), (3,), (7,), (6, 1), (2, 1, 1)])
def test_quadratic_refuses_rows_that_hold_no_square_matrix(shape: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match=r"d \+ d\*d"):
        Quadratic()(shape, 1)


@pytest.mark.parametrize("model", [CharLstm(every_step=True), WordLstm(hidden=20)], ids=named)
def test_a_prediction_depends_only_on_what_was_read(model: CharLstm | WordLstm) -> None:
    network = build(model, (6,), 30)
    x = inputs(model, (6,), 30)
    later = x.clone()
    later[:, 4] = (x[:, 4] + 1) % 30
    before, after = network(x), network(later)
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert (before[:, 4:] - after[:, 4:]).abs().amax(dim=2).min() > 0


@pytest.mark.parametrize("model", [CharLstm(), WordLstm(hidden=20)], ids=named)
def test_the_last_step_is_the_last_of_every_step(model: CharLstm | WordLstm) -> None:
    x = inputs(model, (6,), 30)
    every = build(dataclasses.replace(model, every_step=True), (6,), 30)(x)
    last = build(dataclasses.replace(model, every_step=False), (6,), 30)(x)
    torch.testing.assert_close(last, every[:, -1])


def test_tokens_may_be_stored_in_few_bits_but_not_as_floats() -> None:
    network = build(CharLstm(), (6,), 30)
    x = inputs(CharLstm(), (6,), 30)
    for dtype in (torch.uint8, torch.int16, torch.int32):
        assert torch.equal(network(x.to(dtype)), network(x))
    with pytest.raises(RuntimeError, match="scalar type"):
        network(x.float())


def test_running_statistics_travel_with_the_vector_and_nothing_else_is_needed() -> None:
    shape = (3, 12, 12)
    model = ResNet18()
    trained = build(model, shape, 10)
    assert all(buffer.is_floating_point() for buffer in trained.buffers())
    layout = Layout.of(trained)
    assert layout.size - layout.trainable == 2 * 5 * (64 + 128 + 256 + 512)  # mean and variance of 20 normalisations
    vector = torch.empty(layout.size)
    layout.bind(trained, vector, torch.zeros(layout.trainable))
    before = vector.clone()
    x = inputs(model, shape, 10, batch=6)
    with torch.no_grad():
        trained(x)
    assert torch.equal(vector[: layout.trainable], before[: layout.trainable])
    assert not torch.equal(vector[layout.trainable :], before[layout.trainable :])

    other = build(model, shape, 10, seed=9)
    landing = torch.empty(layout.size)
    layout.bind(other, landing, torch.zeros(layout.trainable))
    landing.copy_(vector)
    with torch.no_grad():
        assert torch.equal(other.eval()(x), trained.eval()(x))


def test_group_norm_keeps_no_statistics_and_sees_each_example_alone() -> None:
    model = ResNet18(norm="group")
    network = build(model, (3, 12, 12), 10)
    assert not list(network.buffers())
    x = inputs(model, (3, 12, 12), 10)
    with torch.no_grad():
        torch.testing.assert_close(network(x)[:1], network(x[:1]), rtol=1e-4, atol=1e-5)


def test_a_residual_block_whose_last_scale_is_zero_passes_its_input_on() -> None:
    network = build(ResNet18(), (3, 12, 12), 10)
    block = network.body[3]
    nn.init.zeros_(block.norm2.weight)
    x = torch.randn(2, 64, 12, 12)
    assert torch.equal(block(x), x.relu())


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.norm = nn.BatchNorm1d(5)
        self.second = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.second(self.norm(self.first(x)).tanh())
        return out


def test_an_own_network_is_copied_with_its_weights_and_pickles() -> None:
    mine = TwoLayers()
    model = Own(mine)
    network = model((4,), 3)
    assert network is not mine
    kept = mine.first.weight.detach().clone()
    assert torch.equal(network.first.weight, kept)
    with torch.no_grad():
        network.first.weight.zero_()
    assert torch.equal(mine.first.weight, kept)
    there = pickle.loads(pickle.dumps(model))((4,), 3)
    assert torch.equal(there.first.weight, kept)
    assert model.loss == "cross_entropy"


def test_an_own_network_lives_in_the_flat_vector() -> None:
    network = Own(TwoLayers())((4,), 3)
    layout = Layout.of(network)
    assert (layout.trainable, layout.size) == (
        4 * 5 + 5 + 2 * 5 + 5 * 3 + 3,
        4 * 5 + 5 + 2 * 5 + 5 * 3 + 3 + 2 * 5 + 1,
    )  # and the count of batches
    gradient = torch.zeros(layout.trainable)
    layout.bind(network, torch.empty(layout.size), gradient)
    F.cross_entropy(network(torch.randn(6, 4)), torch.arange(6) % 3).backward()
    assert torch.equal(layout.entries[0].view(gradient), network.first.weight.grad)
    assert gradient.norm() > 0


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (TwoLayers, r"an instance of torch.nn.Module.*Own\(MyNetwork\(\)\) works"),
        (nn.ReLU(), "no trainable parameter"),
        (nn.Linear(2, 2).requires_grad_(False), "no trainable parameter"),
        (nn.Linear(2, 2).double(), r"weight of Own is torch.float64.*module.float\(\)"),
    ],
)
def test_an_own_network_that_cannot_be_a_float_vector_is_refused(module: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Own(module)


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_an_own_network_without_shapes_is_refused() -> None:
    with pytest.raises(BadInput, match="has no shape yet"):
        Own(nn.LazyLinear(3))
