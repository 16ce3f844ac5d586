"""Client memories: they spill to disk over a limit and come back exactly; the resident set does not grow."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from needs import posix

import fedrelay as fr
from fedrelay import BadInput, Federation, Task, advance, deployed, train
from fedrelay.algorithms import fedavg
from fedrelay.data import Natural, quadratic
from fedrelay.engines import Inline
from fedrelay.engines.memory import MEGABYTE, Memory, bytes_of
from fedrelay.engines.packing import pack, unpack
from fedrelay.models import Quadratic
from fedrelay.runs import checkpoint
from fedrelay.types import Baton, Report, Work

SMALL = 4096 / MEGABYTE  # room for a few of these trees only


def tree(seed: int, length: int = 200) -> dict[str, object]:
    rng = np.random.default_rng(seed)
    return {
        "vector": torch.from_numpy(rng.standard_normal(length, dtype=np.float32)),
        "count": seed,
        "nested": {"word": "x" * (seed % 7), "pair": (torch.tensor(seed), rng.integers(0, 9, 3))},
    }


def same(one: object, other: object) -> bool:
    """Equal in every bit and every type."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.lists(st.integers(-9, 9), max_size=4).map(lambda v: torch.tensor(v, dtype=torch.float32)),
    st.lists(st.integers(-9, 9), max_size=4).map(lambda v: torch.tensor(v, dtype=torch.int64).reshape(1, -1)),
    st.lists(st.booleans(), max_size=4).map(torch.tensor).map(lambda v: v.to(torch.bool)),
    st.lists(st.floats(-9, 9), max_size=4).map(np.array),
)
trees = st.dictionaries(st.text(max_size=3), st.recursive(leaves, lambda part: st.tuples(part, part), max_leaves=6))


@given(trees)
def test_a_parcel_unwraps_to_the_same_tree(content):
    packed = pack(content)
    room = np.zeros(packed.size, np.uint8)
    packed.copy_to(room)
    assert same(unpack(packed.skeleton, room, copy=True), content)
    assert same(unpack(packed.skeleton, room, copy=False), content)


def test_a_tensor_that_occurs_twice_is_laid_once_and_stays_one():
    vector = torch.arange(1000.0)
    packed = pack([vector, {"again": vector}])
    assert packed.size == 4032  # 4000 bytes, in whole lines of 64
    room = np.zeros(packed.size, np.uint8)
    packed.copy_to(room)
    first, second = unpack(packed.skeleton, room, copy=True)
    assert first is second["again"]


def test_a_strided_view_is_laid_as_what_it_shows():
    columns = torch.arange(12.0).view(3, 4).T
    packed = pack(columns)
    room = np.zeros(packed.size, np.uint8)
    packed.copy_to(room)
    assert unpack(packed.skeleton, room, copy=True).tolist() == columns.tolist()


@given(st.lists(st.tuples(st.sampled_from(["stage", "commit", "discard"]), st.integers(0, 9)), max_size=40))
def test_spilling_changes_nothing_whatever_happens(steps):
    spilling, plain = Memory(SMALL), Memory()
    for number, (step, client) in enumerate(steps):
        for memory in (spilling, plain):
            if step == "stage":
                memory.stage(client, tree(number, length=150 + 50 * (number % 3)))
            elif step == "commit":
                memory.commit(number)
            else:
                memory.discard()
        assert all(same(spilling.get(client), plain.get(client)) for client in range(10))
        assert same(dict(spilling.all()), dict(plain.all()))
        assert spilling._store._bytes <= 4096


def test_only_the_limit_is_kept_in_main_memory_and_the_file_does_not_grow():
    memory = Memory(SMALL)
    for round in range(30):
        for client in range(20):
            memory.stage(client, tree(100 * client + round))
        memory.commit(round)
        if round == 2:
            settled = memory._store._end
    assert memory._store._end <= settled
    assert len(memory._store._here) <= 4096 // bytes_of(tree(1))
    assert same(memory.get(3), tree(329))


def test_a_limit_below_one_memory_still_works():
    memory = Memory(1 / MEGABYTE)
    memory.stage(1, tree(1))
    memory.stage(1, tree(2))
    assert same(memory.get(1), tree(2))


def test_a_limit_of_zero_is_refused():
    with pytest.raises(BadInput, match="memory_limit must be above 0, not 0"):
        Memory(0)


@dataclass(frozen=True)
class Diary(Work):
    """Adds up all models that a client has seen, in its memory, and goes a step along the sum."""

    length: int = 400

    def __call__(self, baton, visit):
        known = visit.memory.get("sum", torch.zeros(self.length))
        total = known + float(baton.params.sum()) + visit.client.id
        after = Baton(baton.params * 0.5 + total[:2] * 0.01, baton.weight + visit.client.size)
        return after, {"sum": total, "visits": visit.memory.get("visits", 0) + 1}, Report(visit.client.id, 1)


def run_on(limit: float | None, rounds: int):
    federation = Federation.split(quadratic(clients=30, dimension=2, seed=2), Natural())
    engine = Inline(federation, Task.of(Quadratic(), federation), memory_limit=limit)
    algorithm = replace(fr.method(fedavg(), fraction=0.5), update=Diary())
    return algorithm, engine, list(train(algorithm, engine, rounds=rounds))


def test_a_checkpoint_of_spilled_memories_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "PIECE", 5000)  # several pieces
    _, whole, expected = run_on(None, 6)
    algorithm, engine, states = run_on(SMALL, 3)
    assert engine._memory._store._there
    checkpoint.save(tmp_path, states[-1], engine.memories()[1])
    state, memories = checkpoint.load(tmp_path)
    _, fresh, _ = run_on(SMALL, 1)
    fresh.remember(state.round, memories)
    for _ in range(3):
        state = advance(algorithm, fresh, state)
    assert torch.equal(deployed(state).params, deployed(expected[-1]).params)
    assert same(dict(sorted(fresh.memories()[1].items())), dict(sorted(whole.memories()[1].items())))


# In processes of their own, so that the resident set is that of the run and nothing else.
PRELUDE = """
import json, resource, sys
from dataclasses import dataclass, replace
import torch
from fedrelay import Federation, Sgd, Task, advance, method, start
from fedrelay.data import Iid, synthetic
from fedrelay.engines import Inline
from fedrelay.models import Logistic
from fedrelay.types import Work

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)
"""

ROUNDS = (
    PRELUDE
    + """
@dataclass(frozen=True)
class Keep(Work):
    def __call__(self, baton, visit):
        baton, _, report = Sgd(batch=16)(baton, visit)
        return baton, {"kept": torch.full((50_000,), float(visit.round))}, report

federation = Federation.split(synthetic(examples=2000, shape=(8,), classes=3, test_examples=10), Iid(), 200)
engine = Inline(federation, Task.of(Logistic(), federation), memory_limit=4.0)
algorithm = replace(method(fraction=0.05), update=Keep())
state, found = start(algorithm, engine), {}
for round in range(1, 301):
    state = advance(algorithm, engine, state)
    found[round] = peak()
kept = engine.memories()[1]
print(json.dumps({"50": found[50], "300": found[300], "clients": len(kept), "kept": float(kept[max(kept)]["kept"][0])}))
"""
)

MANY = (
    PRELUDE
    + """
source = synthetic(examples=100_000, shape=(1,), classes=2, test_examples=10)

def megabytes(clients):
    federation = Federation.split(source, Iid(), clients)
    engine = Inline(federation, Task.of(Logistic(), federation))
    algorithm = method(local=Sgd(batch=8), fraction=10 / clients)
    state = start(algorithm, engine)
    for _ in range(3):
        state = advance(algorithm, engine, state)
    return peak(), state.log.clients

few, many = megabytes(1000), megabytes(100_000)
print(json.dumps({"few": few, "many": many}))
"""
)


def measured(program: str):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@posix
def test_the_resident_set_after_300_rounds_is_that_after_50():
    """All memories together would take 40 MB, and one copy of each a round 600 MB."""
    found = measured(ROUNDS)
    assert found["clients"] == 200
    assert found["kept"] > 50
    assert found["300"] - found["50"] < 2


@posix
def test_a_hundred_thousand_stateless_clients_take_less_than_a_kilobyte_each():
    found = measured(MANY)
    assert found["many"][1] == found["few"][1] == 10
    assert (found["many"][0] - found["few"][0]) * 1024 < 99_000
