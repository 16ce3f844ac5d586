"""A plain PyTorch loop: what one writes without a framework."""

from __future__ import annotations

import sys

import torch
from contenders.networks import network
from contenders.tensors import clients
from gate import Gate, counted
from torch.nn import functional
from workloads import LR, WORKLOADS


def main() -> None:
    work, threads = WORKLOADS[sys.argv[1]], int(sys.argv[2])
    torch.set_num_threads(threads)
    data = clients(work)
    model = network(work.model)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    gate = Gate(version=torch.__version__, setting=counted(threads, "thread"))
    draw = torch.Generator().manual_seed(0)
    while True:
        drawn = torch.randperm(len(data), generator=draw)[: work.per_round].tolist()
        total = {name: torch.zeros_like(value) for name, value in state.items()}
        for client in drawn:
            x, y = data[client]
            model.load_state_dict(state)
            optimiser = torch.optim.SGD(model.parameters(), lr=LR)
            for _ in range(work.epochs):
                order = torch.randperm(len(x), generator=draw)
                for rows in order.split(work.batch):
                    optimiser.zero_grad()
                    functional.cross_entropy(model(x[rows]), y[rows]).backward()
                    optimiser.step()
            for name, value in model.state_dict().items():
                if value.is_floating_point():  # not BatchNorm's count of batches
                    total[name] += value / len(drawn)
        state = total
        gate.tick()


if __name__ == "__main__":
    main()
