"""NVFlare 2.9's simulator, as its examples do it: FedAvgRecipe, the client API in a script, SimEnv.

A site for every client of a round, each with a process that stays (`num_threads` as many as sites): with more sites
than processes the simulator starts a new one for every visit, which takes seconds. Its intervals of asking are set
short: by default they are 0.5 and 2 seconds, and most of a round. The half second that a site waits after it has asked
in vain is fixed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path

from contenders.nvflare_server import FIFO, Ticking
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.client.config import ExchangeFormat
from nvflare.recipe import SimEnv
from workloads import WORKLOADS

SHORT = 0.01
"""Seconds between two questions whether there is something to do."""


class Recipe(FedAvgRecipe):
    """With a server that looks often whether a round has ended."""

    def _get_controller_kwargs(self):
        return {"task_check_period": SHORT}


def pass_on(path: Path) -> None:
    """What is asked of this process, to the server, which is another one."""
    with path.open("w") as there:
        for line in sys.stdin:
            there.write(line)
            there.flush()


def main() -> None:
    name = sys.argv[1]
    work = WORKLOADS[name]
    with tempfile.TemporaryDirectory() as folder:
        fifo = Path(folder) / "asked"
        os.mkfifo(fifo)
        os.environ |= {FIFO: str(fifo), "OMP_NUM_THREADS": "1"}
        threading.Thread(target=pass_on, args=(fifo,), daemon=True).start()
        recipe = Recipe(
            name="bench",
            min_clients=work.per_round,
            num_rounds=10**9,
            train_script=str(Path(__file__).with_name("nvflare_site.py")),
            train_args=name,
            model_persistor=Ticking(name),
            server_expected_format=ExchangeFormat.NUMPY,
        )
        recipe.add_server_config({"server": {"task_request_interval": SHORT}})
        recipe.execute(
            SimEnv(num_clients=work.per_round, num_threads=work.per_round, workspace_root=folder, log_config="ERROR")
        )


if __name__ == "__main__":
    main()
