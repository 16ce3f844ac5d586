"""The networks as people write them in PyTorch, for the peers."""

from __future__ import annotations

import torch
from torch import nn
from workloads import LETTERS


class CharLstm(nn.Module):
    """The next character: embedding of 8, two layers of 100."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(LETTERS, 8)
        self.lstm = nn.LSTM(8, 100, 2, batch_first=True)
        self.head = nn.Linear(100, LETTERS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(x))[0][:, -1])


class Block(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            *(nn.Conv2d(channels, filters, 3, stride, 1, bias=False), nn.BatchNorm2d(filters), nn.ReLU(inplace=True)),
            *(nn.Conv2d(filters, filters, 3, 1, 1, bias=False), nn.BatchNorm2d(filters)),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != filters:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, filters, 1, stride, bias=False), nn.BatchNorm2d(filters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu_(self.inner(x) + self.shortcut(x))


def resnet() -> nn.Module:
    """ResNet-18 with the stem for small images."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    before = 64
    for filters, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(before, filters, stride), Block(filters, filters, 1)]
        before = filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def network(model: str) -> nn.Module:
    if model == "logistic":
        return nn.Linear(784, 10)
    if model == "mlp":
        return nn.Sequential(nn.Linear(784, 50), nn.ReLU(), nn.Linear(50, 10))
    if model == "lenet":
        return nn.Sequential(
            *(nn.Conv2d(3, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(1600, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10)),
        )
    if model == "lstm":
        return CharLstm()
    if model == "resnet":
        return resnet()
    # pfl-research's benchmarks/pytorch: simple_cnn
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
        *(nn.Flatten(), nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)),
    )
