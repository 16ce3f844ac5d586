"""What a site of the NVFlare contender runs: its client API."""

from __future__ import annotations

import sys

import nvflare.client as flare
import torch
from contenders.networks import network
from contenders.tensors import clients
from torch.nn import functional
from workloads import LR, WORKLOADS


def main() -> None:
    work = WORKLOADS[sys.argv[1]]
    torch.set_num_threads(1)
    model = network(work.model)
    flare.init()
    mine = clients(work)[int(flare.get_site_name().removeprefix("site-")) - 1]
    x, y = (part.clone() for part in mine)  # not a window on everybody's
    del mine
    while flare.is_running():
        received = flare.receive()
        model.load_state_dict({name: torch.as_tensor(value) for name, value in received.params.items()})
        optimiser = torch.optim.SGD(model.parameters(), lr=LR)
        steps = 0
        for _ in range(work.epochs):
            for rows in torch.randperm(len(x)).split(work.batch):
                optimiser.zero_grad()
                functional.cross_entropy(model(x[rows]), y[rows]).backward()
                optimiser.step()
                steps += 1
        flare.send(
            flare.FLModel(
                params={name: value.numpy() for name, value in model.state_dict().items()},
                meta={"NUM_STEPS_CURRENT_ROUND": steps},
            )
        )


if __name__ == "__main__":
    main()
