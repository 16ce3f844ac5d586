"""Generators and discriminators of the recovery attack: sizes of the authors' code, and what becomes of a model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedrelay import seeds
from fedrelay.models import FemnistCnn, LeNet5, Logistic, ResNet18, SmallCnn
from fedrelay.tasks import Task
from fedrelay.visits.attacks import gan


def parameters(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters())


def test_the_generator_of_32_pixels_has_the_layers_of_the_authors_code():
    generator = gan.generator_of((3, 32, 32), 128)
    weights = 16 * (100 * 512 + 512 * 256 + 256 * 128 + 128 * 3) + 2 * (512 + 256 + 128)
    assert parameters(generator) == weights == 3_448_576
    assert generator(torch.randn(2, 100, 1, 1)).shape == (2, 3, 32, 32)


def test_the_generator_of_28_pixels_has_the_layers_of_the_authors_code():
    generator = gan.generator_of((1, 28, 28), 128)
    assert parameters(generator) == 9 * (100 * 256 + 256 * 128 + 128 * 64 + 64) + 2 * (256 + 128 + 64)
    assert generator(torch.randn(2, 100, 1, 1)).shape == (2, 1, 28, 28)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 30, 45), (1, 5, 3), (3, 64, 64)])
def test_a_generator_makes_images_of_any_shape_between_minus_1_and_1(shape):
    images = gan.generator_of(shape, 4)(torch.randn(3, 100, 1, 1))
    assert images.shape == (3, *shape)
    assert images.abs().max() <= 1


def test_lenet_becomes_a_discriminator_of_as_many_parameters_as_in_the_authors_code():
    task = Task(LeNet5(), (3, 32, 32), 10)
    model = task.init(3)
    made = gan.discriminator_of(task, model)
    lenet = (75 + 1) * 64 + (25 * 64 + 1) * 64 + 1601 * 384 + 385 * 192 + 193 * 10
    assert parameters(made) == lenet + 2 * (64 + 64) + 11 == 798_229
    kinds = [type(layer).__name__ for layer in made.network.body]
    assert kinds[:6] == ["Conv2d", "BatchNorm2d", "LeakyReLU"] * 2
    assert "MaxPool2d" not in kinds
    assert made(torch.randn(2, 3, 32, 32)).shape == (2,)
    received = list(task.layout.pieces(model).values())
    theirs = [each for name, each in made.network.named_parameters() if not is_norm(made.network, name)]
    assert all(torch.equal(one, other) for one, other in zip(received, theirs, strict=True))


def is_norm(network: nn.Module, name: str) -> bool:
    return isinstance(network.get_submodule(name.rpartition(".")[0]), nn.BatchNorm2d)


def test_a_discriminator_is_the_received_model_with_a_binary_layer_on_top():
    task = Task(Logistic(), (1, 4, 4), 3)
    model = task.init(1)
    with seeds.torch_seed(0, "binary"):
        made = gan.discriminator_of(task, model)
    x = torch.randn(5, 1, 4, 4)
    weight, bias = (each.view(shape) for each, shape in zip(torch.split(model, [48, 3]), [(3, 16), (3,)], strict=True))
    classes = x.flatten(1) @ weight.T + bias
    torch.testing.assert_close(made(x), classes @ made.binary.weight[0] + made.binary.bias)


@pytest.mark.parametrize(
    ("model", "shape"),
    [(SmallCnn((2, 3)), (1, 8, 8)), (FemnistCnn(), (1, 28, 28)), (ResNet18(), (3, 9, 9)), (LeNet5(), (1, 17, 18))],
)
def test_other_networks_keep_their_layers_but_have_leaky_relus_and_no_dropout(model, shape):
    task = Task(model, shape, 4)
    made = gan.discriminator_of(task, task.init(0))
    assert not [each for each in made.modules() if isinstance(each, nn.ReLU | nn.Dropout)]
    assert parameters(made) == task.layout.trainable + 4 + 1
    assert made(torch.randn(3, *shape)).shape == (3,)


def test_targets_are_near_1_and_0_and_never_outside():
    with seeds.torch_seed(0, "targets"):
        near = gan.doubted(torch.ones(4000))
    # Half of a normal distribution is cut off: the mean of the other half is 0.1 √(2 / π) below 1, and it counts half.
    assert float(near.mean()) == pytest.approx(1 - 0.1 * (2 / 3.14159) ** 0.5 / 2, abs=0.005)
    assert near.max() == 1


class Constant(nn.Module):
    """Images of one brightness."""

    def __init__(self) -> None:
        super().__init__()
        self.brightness = nn.Parameter(torch.zeros(()))

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.brightness.expand(len(z), 1, 2, 2)


class Bright(nn.Module):
    """The brighter an image, the more real it is."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.slope * x.mean((1, 2, 3))


def test_both_go_the_way_of_adam_towards_telling_and_towards_not_being_told():
    # While a gradient keeps its sign and hardly changes, every step of Adam is as long as the learning rate.
    generator, discriminator = Constant(), Bright()
    with seeds.torch_seed(0, "steps"):
        gan.train(generator, discriminator, (torch.ones(8, 1, 2, 2) for _ in range(50)), lambda images: images, 8)
    assert generator.brightness.item() == pytest.approx(50 * 2e-4, rel=0.05)
    assert discriminator.slope.item() == pytest.approx(0.5 + 50 * 2e-4, rel=0.05)


def test_the_weights_of_a_generator_come_back_from_their_vector():
    one, other = (gan.generator_of((1, 8, 8), 2) for _ in range(2))
    gan.load(other, gan.flat(one))
    noise = torch.randn(3, 100, 1, 1)
    assert torch.equal(one(noise), other(noise))
