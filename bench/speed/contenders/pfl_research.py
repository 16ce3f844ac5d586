"""pfl-research 0.6, as its tutorials do it: in-memory data sets, SimulatedBackend, FederatedAveraging."""

from __future__ import annotations

import sys
from importlib.metadata import version

import numpy as np
import torch
from contenders.networks import network
from contenders.tensors import clients
from gate import Gate
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn
from torch.nn import functional
from workloads import LR, WORKLOADS


class Model(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)

    def loss(self, x, y):
        self.train()
        return functional.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x, y):
        self.eval()
        return {"loss": Weighted(functional.cross_entropy(self(x), y, reduction="sum").item(), len(y))}


class Ticks(TrainingProcessCallback):
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self._gate.tick()
        return False, Metrics()


def main() -> None:
    work, threads = WORKLOADS[sys.argv[1]], int(sys.argv[2])
    torch.set_num_threads(threads)
    np.random.seed(0)  # noqa: NPY002  (pfl draws its cohorts from here)
    users = [PyTorchTensorDataset(pair) for pair in clients(work)]
    sampler = get_user_sampler("minimize_reuse", list(range(len(users))))
    training = FederatedDataset(lambda user: users[user], sampler)
    inner = Model(network(work.model))
    model = PyTorchModel(inner, torch.optim.SGD, torch.optim.SGD(inner.parameters(), lr=1.0))
    FederatedAveraging().run(
        NNAlgorithmParams(10**9, evaluation_frequency=10**9, train_cohort_size=work.per_round, val_cohort_size=0),
        SimulatedBackend(training, training),
        model,
        NNTrainHyperParams(local_num_epochs=work.epochs, local_learning_rate=LR, local_batch_size=work.batch),
        NNEvalHyperParams(local_batch_size=10_000),
        [Ticks(Gate(version=version("pfl"), setting=f"{threads} threads"))],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    main()
