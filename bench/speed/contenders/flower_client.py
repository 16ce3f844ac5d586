"""The client of the Flower contender: in a module of its own, because Flower pickles what is defined in a script."""

from __future__ import annotations

import os
from functools import cache

import torch
from contenders.networks import network
from contenders.tensors import clients
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn import functional
from workloads import LR, WORKLOADS

app = ClientApp()


@cache
def mine():
    """Once per actor process."""
    work = WORKLOADS[os.environ["BENCH_WORKLOAD"]]
    torch.set_num_threads(int(os.environ["BENCH_THREADS"]))
    return work, clients(work), network(work.model)


@app.train()
def train(message: Message, context: Context) -> Message:
    work, data, model = mine()
    x, y = data[int(context.node_config["partition-id"])]
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=LR)
    for _ in range(work.epochs):
        for rows in torch.randperm(len(x)).split(work.batch):
            optimiser.zero_grad()
            functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(x)}),
    }
    return Message(content=RecordDict(content), reply_to=message)
