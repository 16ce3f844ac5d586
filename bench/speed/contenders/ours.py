"""fedrelay, with the engine that the third argument names (`auto` is the default of a configuration)."""

from __future__ import annotations

import sys

import numpy as np
import torch
from gate import Gate
from workloads import LR, WORKLOADS, Workload

import fedrelay
import fedrelay as fr
from fedrelay import Federation, Sgd, Task, train
from fedrelay.algorithms import fedavg, fedseq
from fedrelay.data import Examples, Source
from fedrelay.engines import ENGINES
from fedrelay.models import CharLstm, LeNet5, Logistic, Mlp, PflCnn, ResNet18

MODELS = {
    "logistic": Logistic(),
    "mlp": Mlp(),
    "lenet": LeNet5(),
    "cnn": PflCnn(),
    "lstm": CharLstm(),
    "resnet": ResNet18(),
}


def federation_of(work: Workload) -> Federation:
    x, y = (torch.from_numpy(part) for part in work.data())
    source = Source("bench", Examples(x, y), Examples(x[:2], y[:2]), classes=work.classes)
    return Federation.of(source, np.split(np.arange(len(x)), work.clients))


def main() -> None:
    work, engine_name = WORKLOADS[sys.argv[1]], sys.argv[3]
    federation = federation_of(work)
    local = Sgd(epochs=work.epochs, batch=work.batch, lr=LR)
    engine = ENGINES[engine_name](federation, Task.of(MODELS[work.model], federation))
    if work.chain > 1:
        groups = work.clients // work.chain
        algorithm = fr.method(fedseq(groups=groups), local=local, fraction=work.per_round / groups)
    else:
        algorithm = fr.method(fedavg(), local=local, fraction=work.per_round / work.clients)
    gate = Gate(leave=getattr(engine, "close", bool), version=fedrelay.__version__)
    for state in train(algorithm, engine, rounds=10**9):
        assert state.log.chains == work.per_round, state.log
        if state.round == 1:
            gate.facts["setting"] = str(getattr(engine, "explanation", "") or engine_name).split(": about")[0]
        if state.round > 3:  # the engine has settled
            gate.tick()


if __name__ == "__main__":
    main()
