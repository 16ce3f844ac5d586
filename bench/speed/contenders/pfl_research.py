"""pfl-research 0.6, as its tutorials do it: in-memory data sets, SimulatedBackend, FederatedAveraging.

With several processes, as its guide to fast distributed simulations says: the same program once per rank, which share
the cohort.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from importlib.metadata import version

RANK = "PFL_WORKER_RANK"
THREADS, PROCESSES = int(sys.argv[2]), int(sys.argv[3])
OTHERS: list[subprocess.Popen[bytes]] = []
if PROCESSES > 1 and RANK not in os.environ:  # before pfl is imported: it looks then
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    os.environ["PFL_WORKER_ADDRESSES"] = ",".join(f"localhost:{port + rank}" for rank in range(PROCESSES))
    OTHERS += [
        subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, RANK: str(rank)}, stdin=subprocess.DEVNULL)
        for rank in range(1, PROCESSES)
    ]
    os.environ[RANK] = "0"

import numpy as np  # noqa: E402
import torch  # noqa: E402
from contenders.networks import network  # noqa: E402
from contenders.tensors import clients  # noqa: E402
from gate import Gate, counted  # noqa: E402
from pfl.aggregate.simulate import SimulatedBackend  # noqa: E402
from pfl.algorithm.base import NNAlgorithmParams  # noqa: E402
from pfl.algorithm.federated_averaging import FederatedAveraging  # noqa: E402
from pfl.callback.base import TrainingProcessCallback  # noqa: E402
from pfl.data.federated_dataset import FederatedDataset  # noqa: E402
from pfl.data.pytorch import PyTorchTensorDataset  # noqa: E402
from pfl.data.sampling import get_user_sampler  # noqa: E402
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams  # noqa: E402
from pfl.metrics import Metrics, Weighted  # noqa: E402
from pfl.model.pytorch import PyTorchModel  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from workloads import LR, WORKLOADS  # noqa: E402


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
        if os.environ.get(RANK, "0") == "0":  # the others wait for it in their next exchange
            self._gate.tick()
        return False, Metrics()


def leave() -> None:
    for other in OTHERS:
        other.kill()


def main() -> None:
    work = WORKLOADS[sys.argv[1]]
    torch.set_num_threads(THREADS)
    np.random.seed(0)  # noqa: NPY002  (pfl draws its cohorts from here)
    users = [PyTorchTensorDataset(pair) for pair in clients(work)]
    sampler = get_user_sampler("minimize_reuse", list(range(len(users))))
    training = FederatedDataset(lambda user: users[user], sampler)
    inner = Model(network(work.model))
    model = PyTorchModel(inner, torch.optim.SGD, torch.optim.SGD(inner.parameters(), lr=1.0))
    setting = f"{PROCESSES} processes" if PROCESSES > 1 else counted(THREADS, "thread")
    FederatedAveraging().run(
        NNAlgorithmParams(10**9, evaluation_frequency=10**9, train_cohort_size=work.per_round, val_cohort_size=0),
        SimulatedBackend(training, training),
        model,
        NNTrainHyperParams(local_num_epochs=work.epochs, local_learning_rate=LR, local_batch_size=work.batch),
        NNEvalHyperParams(local_batch_size=10_000),
        [Ticks(Gate(leave=leave, version=version("pfl"), setting=setting))],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    main()
