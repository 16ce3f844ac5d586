"""fluke 0.8, as its tutorial on the Python API does it: FedAVG over clients with fast loaders, watched by an observer.

Its only parallel engine is for several GPUs. It evaluates after every round by default; here it does not, as nobody
does.
"""

from __future__ import annotations

import sys
from importlib.metadata import version

import torch

try:
    import torchvision  # noqa: F401
except RuntimeError:  # PyPI's is for CUDA's torch: beside another it lacks these operators, which nobody here calls
    LIBRARY = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import numpy as np
from contenders.networks import network
from contenders.tensors import clients
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.utils import FederationObserver
from gate import Gate, counted
from workloads import LR, WORKLOADS, Workload


class Ticks(FederationObserver):
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def end_round(self, round: int) -> None:
        self._gate.tick()


def splitter(work: Workload) -> DataSplitter:
    """Who has what is given: the container for data sets that come so."""
    loaders = [
        FastDataLoader(x, y, num_labels=work.classes, batch_size=work.batch, shuffle=True) for x, y in clients(work)
    ]
    return DataSplitter(DummyDataContainer(loaders, [None] * len(loaders), None, work.classes))


def main() -> None:
    work, threads = WORKLOADS[sys.argv[1]], int(sys.argv[2])
    torch.set_num_threads(threads)
    environment = FlukeENV()
    environment.set_seed(0)
    environment.set_device("cpu")
    environment.set_evaluator(ClassificationEval(eval_every=10**9, n_classes=work.classes))
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    data = splitter(work)
    count = len(data.data_container.clients_tr)
    settings = DDict(
        model=network(work.model),
        client=DDict(
            batch_size=work.batch,
            local_epochs=work.epochs,
            loss=torch.nn.CrossEntropyLoss,
            optimizer=DDict(name=torch.optim.SGD, lr=LR),
            scheduler=DDict(name=torch.optim.lr_scheduler.StepLR, step_size=1, gamma=1.0),
        ),
        server=DDict(weighted=True),
    )
    federation = FedAVG(n_clients=count, data_splitter=data, hyper_params=settings)
    federation.set_callbacks([Ticks(Gate(version=version("fluke-fl"), setting=counted(threads, "thread")))])
    federation.run(n_rounds=10**9, eligible_perc=work.per_round / count)


if __name__ == "__main__":
    np.random.seed(0)  # noqa: NPY002  (fluke draws its clients from here)
    main()
