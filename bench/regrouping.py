"""What grouping anew in every round costs a run: it hides behind the training where a core is free.

    python bench/regrouping.py [--clients 3500] [--rounds 20]

The same run with groups that stay and with groups made anew every round (inter-cluster grouping by class histogram),
beside what making them takes alone. On an idle machine with two cores the two runs should take the same time; ends with
exit code 1 when less than half of it is hidden.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

import fedrelay as fr
from fedrelay import Federation, Sgd, Task, start, train
from fedrelay.algorithms import fedgsp
from fedrelay.data import Dirichlet, synthetic
from fedrelay.engines import Inline
from fedrelay.models import Mlp
from fedrelay.plans import Fixed, Traits
from fedrelay.plans.background import in_process

CLIENTS_TO_A_GROUP = 20
HIDDEN = 0.5
"""On a machine with a free core at least this share of making the groups must cost no time."""


def engine_of(clients: int) -> Inline:
    source = synthetic(examples=20 * clients, classes=10)
    federation = Federation.split(source, Dirichlet(alpha=0.1), clients)
    return Inline(federation, Task.of(Mlp(hidden=(200,)), federation))


def seconds_of_rounds(engine: Inline, regroup: str, rounds: int) -> float:
    """The median round, after one that may still start things up."""
    algorithm = fr.method(
        fedgsp(growth=Fixed(len(engine.sizes) // CLIENTS_TO_A_GROUP), regroup=regroup),
        local=Sgd(batch=20),
        fraction=0.3,
    )
    return float(np.median([state.log.seconds for state in train(algorithm, engine, rounds=rounds + 1)][1:]))


def seconds_of_grouping(engine: Inline) -> float:
    algorithm = fr.method(fedgsp(growth=Fixed(len(engine.sizes) // CLIENTS_TO_A_GROUP)))
    traits = Traits.of(start(algorithm, engine).memo["traits"])
    began = time.perf_counter()
    algorithm.plan.groups(traits, engine.sizes, 0, 1)
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=3500)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    engine = engine_of(options.clients)
    in_process(abs, 1)  # the other process has started
    grouping = seconds_of_grouping(engine)
    found = {how: seconds_of_rounds(engine, how, options.rounds) for how in ("growth", "every_round")}
    cost = found["every_round"] - found["growth"]
    print(f"{options.clients} clients in {options.clients // CLIENTS_TO_A_GROUP} groups")
    print(f"making the groups          {grouping:8.3f} s")
    print(f"a round, groups that stay  {found['growth']:8.3f} s")
    print(f"a round, made anew         {found['every_round']:8.3f} s")
    hidden = 1 - np.clip(cost / grouping, 0, 1)
    print(f"so {hidden:.0%} of making them is hidden")
    return 0 if hidden >= HIDDEN else 1


if __name__ == "__main__":
    sys.exit(main())
