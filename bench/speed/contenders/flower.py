"""Flower 1.41's simulation, as its quickstart does it: FedAvg over Ray actors, the client app in a module."""

from __future__ import annotations

import logging
import os
import sys

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
os.environ["BENCH_WORKLOAD"], os.environ["BENCH_THREADS"] = sys.argv[1], sys.argv[2]
os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)

import flwr  # noqa: E402
import ray  # noqa: E402
from contenders.flower_client import app  # noqa: E402
from contenders.networks import network  # noqa: E402
from contenders.tensors import clients  # noqa: E402
from flwr.app import ArrayRecord  # noqa: E402
from flwr.serverapp import ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402
from gate import Gate, counted  # noqa: E402
from machine import cores  # noqa: E402
from workloads import WORKLOADS  # noqa: E402

WORK, THREADS = WORKLOADS[sys.argv[1]], int(sys.argv[2])
GATE = Gate(leave=ray.shutdown, version=flwr.__version__, setting=f"{counted(THREADS, 'core')} a client")
SERVER = ServerApp()


class Ticking(FedAvg):
    def aggregate_train(self, server_round, replies):
        result = super().aggregate_train(server_round, replies)
        GATE.tick()
        return result


@SERVER.main()
def serve(grid, context) -> None:
    count = WORK.clients // WORK.chain
    strategy = Ticking(fraction_train=WORK.per_round / count, fraction_evaluate=0.0, min_available_nodes=count)
    strategy.start(grid, ArrayRecord(network(WORK.model).state_dict()), num_rounds=10**9)


def main() -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    run_simulation(
        SERVER,
        app,
        num_supernodes=len(clients(WORK)),
        backend_config={
            "client_resources": {"num_cpus": THREADS, "num_gpus": 0},
            "init_args": {"num_cpus": cores(), "include_dashboard": False, "log_to_driver": False},
        },
    )


if __name__ == "__main__":
    main()
