"""What torch's own operators give: forward, backward and step on batches that lie ready, and nothing else.

No data are drawn or gathered, no model is handed out or averaged, nobody is asked. With several processes each does its
share of a round's visits, and they meet when it ends. `last` lays images channels-last, which is quicker where the
processor's library has it so.
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.connection import Connection

import torch
from contenders.networks import network
from contenders.tensors import clients
from gate import Gate, counted
from torch.nn import functional
from workloads import LR, WORKLOADS, Workload


class Bare:
    """A network that takes the steps of so many visits."""

    def __init__(self, work: Workload, visits: int, *, last: bool) -> None:
        layout = torch.channels_last if last else torch.contiguous_format
        self._model = network(work.model)
        self._batches = [
            (inputs.contiguous(memory_format=layout), targets)
            for x, y in clients(work)[:visits]
            for inputs, targets in zip(x.split(work.batch), y.split(work.batch), strict=True)
        ] * work.epochs
        if last:
            self._model = self._model.to(memory_format=layout)
        self._weights = list(self._model.parameters())

    def round(self) -> None:
        for x, y in self._batches:
            functional.cross_entropy(self._model(x), y).backward()
            gradients = [weight.grad for weight in self._weights]
            with torch.no_grad():
                torch._foreach_add_(self._weights, gradients, alpha=-LR)
            for weight in self._weights:
                weight.grad = None


def help_out(pipe: Connection, name: str, visits: int, *, last: bool) -> None:
    """Another process: a round whenever it is asked for one."""
    torch.set_num_threads(1)
    bare = Bare(WORKLOADS[name], visits, last=last)
    while pipe.recv():
        bare.round()
        pipe.send(True)


def main() -> None:
    name, threads, processes, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "last"
    work = WORKLOADS[name]
    torch.set_num_threads(threads)
    visits = max(work.per_round // processes, 1)
    context, pipes = multiprocessing.get_context("spawn"), []
    for _ in range(processes - 1):
        here, there = context.Pipe()
        context.Process(target=help_out, args=(there, name, visits), kwargs={"last": last}, daemon=True).start()
        pipes.append(here)
    bare = Bare(work, visits, last=last)
    setting = f"{processes} processes" if processes > 1 else counted(threads, "thread")
    gate = Gate(
        leave=lambda: [pipe.send(False) for pipe in pipes],
        version=torch.__version__,
        setting=setting + (", channels-last" if last else ""),
        examples=processes * visits * work.size * work.epochs,
    )
    while True:
        for pipe in pipes:
            pipe.send(True)
        bare.round()
        for pipe in pipes:
            pipe.recv()
        gate.tick()


if __name__ == "__main__":
    main()
