"""Every method with clients that share nothing with the server but bytes: the same bits as in one process."""

from __future__ import annotations

import in_process
import pytest
import torch
import zoo

from fedrelay import adapted, train
from fedrelay.algorithms import ALGORITHMS
from fedrelay.engines import Inline
from fedrelay.runs import checkpoint

METHODS = [name for name, row in ALGORITHMS.items() if not row.recipe().pooled]
PAIRS = ("fedseq+scaffold", "fedseqinter+feddyn", "fedseq+fedfusion", "fedseq+elmy")


@pytest.mark.parametrize("name", [*METHODS, *PAIRS])
def test_a_method_gives_the_same_bits_with_clients_elsewhere_also_after_a_resume(name, tmp_path):
    algorithm = zoo.made(name)
    federation = zoo.federation_for(algorithm)
    task = adapted(algorithm, zoo.task_for(federation, name))
    expected, kept = zoo.trained(algorithm, Inline(federation, task, 1))
    engine = in_process.remote(algorithm, federation, task, tmp_path / "all", backwards=True)
    found = list(train(algorithm, engine, rounds=zoo.ROUNDS))
    assert zoo.same_bits(zoo.models(expected), zoo.models(found))
    assert zoo.same_bits(kept, memories_of(engine))

    engine = in_process.remote(algorithm, federation, task, tmp_path / "part")
    *_, state = train(algorithm, engine, rounds=zoo.ROUNDS - 1)
    checkpoint.save(tmp_path, state, engine.memories()[1])
    engine.saved(state.round)
    list(train(algorithm, engine, rounds=zoo.ROUNDS, state=state))  # these rounds are lost with their server
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    engine.remember(loaded[0].round, loaded[1])
    again = list(train(algorithm, engine, rounds=zoo.ROUNDS, state=loaded[0]))
    assert zoo.same_bits(zoo.models(expected[-1:]), zoo.models(again))
    assert zoo.same_bits(kept, memories_of(engine))


def memories_of(engine) -> list[torch.Tensor]:
    """What clients keep, from their own disks, by the names that the server has for it."""
    found = []
    for client, tree in sorted(engine.memories()[1].items()):
        memory = engine.wire.visitors[client].memory.get(tree["version"])
        found += [memory[key] for key in sorted(memory)]
    return found
