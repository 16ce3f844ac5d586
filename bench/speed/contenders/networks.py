"""The networks as people write them in PyTorch, for the peers."""

from __future__ import annotations

from torch import nn


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
    # pfl-research's benchmarks/pytorch: simple_cnn
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
        *(nn.Flatten(), nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)),
    )
