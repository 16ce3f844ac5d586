"""What grows with the number of clients are arrays: a hundred thousand of them show what ten million would cost."""

from __future__ import annotations

import cProfile
import tracemalloc

import numpy as np
import pytest

import fedrelay as fr
from fedrelay import BadInput, config
from fedrelay.algorithms import fedavg, fedseq
from fedrelay.plans.grouping.criteria import GREEDY
from fedrelay.plans.grouping.groups import Alone, Grouped
from fedrelay.plans.sampling import SAMPLERS
from fedrelay.runs.loop import start
from fedrelay.system.sequences import Integers
from fedrelay.visits.traits import ClassHistogram

CLIENTS, SIZE = 100_000, 2
DATA = SIZE * (4 * 4 + 8)
"""Bytes of a client's examples: four numbers and a class each."""


def tables(name: str, **settings) -> dict:
    return {
        "rounds": 3,
        "data": {"name": "synthetic", "examples": SIZE * CLIENTS, "shape": [4], "test_examples": 2, "clients": CLIENTS},
        "model": {"name": "mlp", "hidden": [4]},
        "local": {"batch": 2},
        "algorithm": {"name": name, "fraction": 20 / CLIENTS, **settings},
        "engine": {"name": "inline"},
    }


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedavg", {}),
        ("fedseq", {"max_clients": 10}),
        ("fedavg", {"sampler": "md"}),
        ("fedavg", {"sampler": "by_size"}),
    ],
)
def test_a_run_keeps_a_few_bytes_of_a_client_and_no_object(name, settings, tmp_path):
    wanted = tables(name, **settings)
    list(
        config.build({**wanted, "data": {**wanted["data"], "examples": 400, "clients": 200}})
        .record(tmp_path / "a")
        .run()
    )
    tracemalloc.start()  # what NumPy holds is counted; torch only looks at it
    try:
        experiment = config.build(wanted)
        rounds = experiment.record(tmp_path / "run").run()
        next(rounds)
        next(rounds)
        kept, peak = tracemalloc.get_traced_memory()
        objects = len(tracemalloc.take_snapshot().traces)
    finally:
        tracemalloc.stop()
    rounds.close()
    assert kept >= CLIENTS * DATA / 2  # or this measures nothing
    assert kept < CLIENTS * (DATA + 50)
    assert peak < CLIENTS * (DATA + 100)
    assert objects < 20_000


def test_the_first_round_of_many_clients_takes_no_call_for_each_of_them(tmp_path):
    def calls(name: str, clients: int) -> int:
        wanted = tables("fedavg")
        wanted["data"] |= {"examples": SIZE * clients, "clients": clients}
        wanted["algorithm"] |= {"fraction": 20 / clients}
        with cProfile.Profile() as profile:
            next(iter(config.build(wanted).record(tmp_path / name).run()))
        return sum(entry.callcount for entry in profile.getstats())

    calls("imports", 1000)
    assert calls("many", CLIENTS) < calls("few", 1000) + 1000


@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name not in ("full", "by_similarity", "target")])
def test_a_draw_among_many_is_that_among_tuples(sampler):
    sizes = np.random.default_rng(0).integers(1, 50, 5000)
    draws = [SAMPLERS[sampler]().distributions(given, 30) for given in (Integers.of(sizes), sizes.tolist())]
    one, other = (draw.draw(np.random.default_rng(1)) for draw in draws)
    assert one == other
    assert draws[0].variance == draws[1].variance


def test_what_would_take_hours_is_refused_before_clients_are_asked():
    plan = fr.method(fedseq(traits=ClassHistogram(), max_clients=10)).plan
    sizes = Integers.of(np.full(GREEDY + 1, 3))
    with pytest.raises(BadInput, match=r"the grouper greedy goes to 100,000 clients.* there are 100,001: take icg"):
        plan.init(lambda work: pytest.fail("somebody was asked"), sizes, np.random.default_rng(0))


def test_a_plan_knows_everybody_alone_by_their_number():
    experiment = config.build(tables("fedavg"))
    memo = start(fr.method(fedavg(), fraction=0.001), experiment.engine).memo
    assert isinstance(memo["groups"], Alone)
    assert memo["sizes"] is experiment.federation.sizes  # no copy


# --- the sequences themselves


def test_integers_are_as_a_tuple_of_them():
    found = Integers.of([3, 1, 2])
    assert found == (3, 1, 2) == found
    assert found != (3, 1)
    assert hash(found) == hash((3, 1, 2))
    assert (found[0], found[-1], found[1:], list(found), found.total) == (3, 2, (1, 2), [3, 1, 2], 6)
    assert repr(found) == "(3, 1, 2)"
    assert "1,000 in all" in repr(Integers.of(range(1000)))
    assert type(found[0]) is int
    assert found.array.dtype == np.int32
    with pytest.raises(IndexError):
        found[3]


def test_integers_too_large_for_four_bytes_have_eight_and_their_sum_does_not_overflow():
    found = Integers.of([2**62, 2**62, 5])
    assert found.array.dtype == np.int64
    assert found.total == 2**63 + 5
    assert Integers.of(np.full(3, 2**31 - 1)).total == 3 * (2**31 - 1)


def test_groups_in_arrays_are_as_tuples_of_tuples():
    found = Grouped.of([5, 1, 4, 0, 2, 3], [2, 3, 1])
    assert found == ((0, 2, 4), (1, 5), (3,)) == found
    assert (len(found), found[-1], found[1:]) == (3, (3,), ((1, 5), (3,)))
    assert found != ((0, 2, 4), (1, 5))
    assert Grouped.of(range(3), [1, 1, 1]) == Alone(3) == ((0,), (1,), (2,))
    with pytest.raises(ValueError, match="do not go with groups"):
        Grouped(Integers.of([0, 1]), Integers.of([0, 1]))
