"""What the server of the NVFlare contender starts from, and does at the end of a round: in a module of its own, because
the simulator imports it by name."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nvflare
from contenders.networks import network
from gate import Gate, counted
from nvflare.app_common.abstract.model import make_model_learnable
from nvflare.app_common.abstract.model_persistor import ModelPersistor
from workloads import WORKLOADS

FIFO = "BENCH_FIFO"


class Ticking(ModelPersistor):
    """Where models are kept: here they are not, but it is asked to once a round."""

    def __init__(self, workload: str) -> None:
        super().__init__()
        self.workload = workload
        self._gate: Gate | None = None

    def load_model(self, fl_ctx):
        weights = network(WORKLOADS[self.workload].model).state_dict()
        return make_model_learnable({name: value.numpy() for name, value in weights.items()}, {})

    def save_model(self, model, fl_ctx):
        if self._gate is None:
            sys.stdin = Path(os.environ[FIFO]).open()  # noqa: SIM115  (until the process ends)
            sites = WORKLOADS[self.workload].per_round
            self._gate = Gate(version=nvflare.__version__, setting=counted(sites, "site") + ", a process each")
        self._gate.tick()
