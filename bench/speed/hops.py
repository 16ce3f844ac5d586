"""F: what a hop costs besides the work: 4 chains of 8 hops of empty work, a model of 3.2 MB."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass

from fedrelay import Federation, Task
from fedrelay.data import Iid, synthetic
from fedrelay.engines import Inline, Pool
from fedrelay.models import LeNet5
from fedrelay.types import Baton, Chain, Engine, Report, Tree, Visit, Work

CHAINS, HOPS, ROUNDS = 4, 8, 30


@dataclass(frozen=True)
class Nothing(Work):
    """Takes the model and gives it on; with `copy` as another one, as training would."""

    copy: bool = False

    def __call__(self, baton: Baton, visit: Visit, /) -> tuple[Baton, Tree, Report]:
        params = baton.params.clone() if self.copy else baton.params
        return Baton(params, baton.weight + 1), visit.memory, Report(visit.client.id, 1)


def milliseconds_a_hop(engine: Engine, work: Nothing) -> float:
    start = Baton(engine.task.init(0))
    chains = [Chain(start, tuple(range(i * HOPS, (i + 1) * HOPS))) for i in range(CHAINS)]
    times = []
    for round in range(1, ROUNDS + 1):
        began = time.perf_counter()
        assert sum(len(outcome.reports) for outcome in engine.run(work, chains, {}, round)) == CHAINS * HOPS
        times.append(time.perf_counter() - began)
    return statistics.median(times[5:]) / (CHAINS * HOPS) * 1000


def main() -> None:
    source = synthetic(examples=CHAINS * HOPS, shape=(3, 32, 32), test_examples=2)
    federation = Federation.split(source, Iid(), CHAINS * HOPS)
    task = Task.of(LeNet5(), federation)
    with Pool(federation, task) as pool:
        engines = {"inline": Inline(federation, task), "pool": pool}
        works = {"": Nothing(), " with a new model": Nothing(copy=True)}
        found = {
            f"{name}{kind}": milliseconds_a_hop(engine, work)
            for name, engine in engines.items()
            for kind, work in works.items()
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
