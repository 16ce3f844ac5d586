"""Laws of the methods whose chains change: several batons, a virtual clock, a growing number of groups."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from quadratics import FULL_STEPS, models_of, three

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, advance, deployed, seeds, start, train
from fedrelay.algorithms import (
    fedasyncseq,
    fedavg,
    fedcyclic,
    fedgsp,
    fedseq,
    fedseq2par,
    fedseqinter,
    naivegsp,
    naivegsp_icg,
)
from fedrelay.data import Dirichlet, Natural, digits, quadratic, quadratic_of
from fedrelay.engines import Inline
from fedrelay.models import Mlp, Quadratic
from fedrelay.plans import Exponential, Fixed, Linear, Logarithmic, Traits
from fedrelay.runs import checkpoint
from fedrelay.runs.latency import Given, Latency, Same, Tiers
from fedrelay.types import Algorithm, State, Work
from fedrelay.visits.traits import ClassHistogram

LOCAL = Sgd(steps=4, batch=8, lr=0.1, momentum=0.5)
STEPS = Sgd(steps=5, batch=0, lr=0.1)
EQUAL = Latency(Same(10.0), Same(1.0))
UNEQUAL = Latency(Tiers((5.0, 20.0, 80.0)), Same(1.0), Same(0.8), away=30.0)


def one_class_digits(clients: int = 20, seed: int = 3) -> Inline:
    federation = Federation.split(digits(), Dirichlet(alpha=0.0), clients, seed)
    return Inline(federation, Task.of(Mlp(hidden=(16,)), federation), seed)


def quadratics(clients: int = 12, examples: int = 10) -> Inline:
    federation = Federation.split(quadratic(clients=clients, dimension=3, examples=examples, seed=1), Natural())
    return Inline(federation, Task.of(Quadratic(), federation))


def states_of(algorithm: Algorithm, engine: Inline, rounds: int, latency: Latency | None = None) -> list[State]:
    return list(train(algorithm, engine, rounds=rounds, latency=latency))


def model(state: State) -> torch.Tensor:
    """The one model that would be used now."""
    return deployed(state).params


def same_models(first: list[State], second: list[State]) -> bool:
    return all(torch.equal(model(a), model(b)) for a, b in zip(first, second, strict=True))


# --- several batons ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fraction", [0.2, 0.6, 1.0])
def test_fedseqinter_that_merges_every_round_is_fedseq_to_the_bit(fraction):
    options = {"local": LOCAL, "fraction": fraction}
    alone = states_of(fr.method(fedseq(max_clients=4), **options), one_class_digits(), 5)
    inter = states_of(fr.method(fedseqinter(max_clients=4, period=1), **options), one_class_digits(), 5)
    assert same_models(alone, inter)
    assert [state.log.messages for state in alone] == [state.log.messages for state in inter]
    assert not torch.equal(model(alone[0]), model(alone[1]))


def test_fedseqinter_that_merges_less_often_is_something_else():
    options = {"local": LOCAL, "fraction": 0.6}
    alone = states_of(fr.method(fedseq(max_clients=4), **options), one_class_digits(), 2)
    inter = states_of(fr.method(fedseqinter(max_clients=4, period=2), **options), one_class_digits(), 2)
    assert torch.equal(model(alone[0]), model(inter[0]))  # the mean of the slots is what fedseq merges
    assert not torch.equal(model(alone[1]), model(inter[1]))


def test_slots_relay_their_own_batons_and_are_merged_by_the_examples_they_gathered():
    """Replays the planned chains in float64: three slots, groups of unlike sizes, merged every third round."""
    matrices = [np.diag([1.0 + i, 2.0]) for i in range(6)]
    centres = [np.array([float(i), -float(i)]) for i in range(6)]
    sizes = (1, 2, 3, 4, 5, 6)
    federation = Federation.split(quadratic_of(matrices, centres, sizes), Natural())
    engine = Inline(federation, Task.of(Quadratic(), federation))
    algorithm = fr.method(fedseqinter(max_clients=1, period=3), local=STEPS, fraction=0.5)
    state = start(algorithm, engine)
    models, gathered, merged = {}, {}, model(state).double().numpy()
    for round in range(1, 8):
        chains = algorithm.plan(state, seeds.rng(engine.seed, "plan", round)).chains
        state = advance(algorithm, engine, state)
        assert [chain.slot for chain in chains] == [0, 1, 2]
        for chain in chains:
            (client,) = chain.clients
            power = np.linalg.matrix_power(np.eye(2) - 0.1 * matrices[client], 5)
            before = models.get(chain.slot, merged)
            models[chain.slot] = power @ (before - centres[client]) + centres[client]
            gathered[chain.slot] = gathered.get(chain.slot, 0) + sizes[client]
        expected = sum(gathered[slot] * models[slot] for slot in models) / sum(gathered.values())
        np.testing.assert_allclose(model(state).numpy(), expected, atol=1e-5)
        assert len(state.batons) == (1 if round % 3 == 0 else 3)
        if round % 3 == 0:
            merged, models, gathered = expected, {}, {}


def test_a_baton_goes_to_another_group_every_time():
    algorithm, engine = fr.method(fedseqinter(max_clients=3, period=50), local=STEPS, fraction=0.75), quadratics()
    before: dict[int, int] = {}
    for state in train(algorithm, engine, rounds=40):
        now = state.memo["at"]
        assert len(set(now.values())) == 3
        assert all(before.get(slot) != group for slot, group in now.items())
        before = now


def test_one_baton_goes_to_another_group_too_unless_there_is_only_one():
    many = states_of(fr.method(fedseqinter(max_clients=6, period=50), local=STEPS, fraction=0.1), quadratics(), 10)
    visited = [state.memo["at"][0] for state in many]
    assert visited in ([0, 1] * 5, [1, 0] * 5)
    one = states_of(fr.method(fedseqinter(max_clients=12, period=50), local=STEPS, fraction=1.0), quadratics(), 3)
    assert [state.memo["at"] for state in one] == [{0: 0}] * 3


def test_the_period_is_the_number_of_groups_unless_it_is_given():
    found = states_of(fr.method(fedseqinter(max_clients=3), local=STEPS, fraction=0.5), quadratics(), 9)  # 4 groups
    assert [len(state.batons) for state in found] == [2, 2, 2, 1, 2, 2, 2, 1, 2]


def test_the_same_number_of_messages_as_fedseq_every_round():
    """Journal, Table 3: C N_S down, C N_S up, C (K - N_S) between clients, for equal groups."""
    for state in states_of(fr.method(fedseqinter(max_clients=3), local=STEPS, fraction=0.5), quadratics(), 5):
        assert state.log.messages == {"server_to_client": 2, "client_to_server": 2, "client_to_client": 4}


@dataclass(frozen=True)
class Fails(Work):
    """Loses every client of a group's chain in one round."""

    work: Work
    round: int
    clients: frozenset[int]

    def __call__(self, baton, visit, /):
        if visit.round == self.round and visit.client.id in self.clients:
            raise ZeroDivisionError("broken")
        return self.work(baton, visit)


def test_a_slot_whose_chain_fails_keeps_its_baton_and_the_others_are_merged_without_it():
    algorithm, engine = fr.method(fedseqinter(max_clients=3, period=4), local=STEPS, fraction=0.75), quadratics()
    good = start(algorithm, engine)
    chains = algorithm.plan(good, seeds.rng(engine.seed, "plan", 1)).chains
    lost = replace(algorithm, update=Fails(STEPS, 1, frozenset(chains[2].clients)))
    with pytest.warns(fr.DroppedClients):
        first, second, *_, last = states_of(lost, engine, 4)
    assert [baton.weight for baton in first.batons] == [30, 30, 0]
    assert torch.equal(first.batons[2].params, good.batons[0].params)  # its own: not what the others have become
    mean = (first.batons[0].params + first.batons[1].params) / 2
    np.testing.assert_allclose(model(first), mean, atol=1e-6)
    assert [baton.weight for baton in second.batons] == [60, 60, 30]
    assert len(last.batons) == 1


def test_a_chain_that_fails_in_a_merging_round_is_left_out_as_in_fedseq():
    options = {"local": STEPS, "fraction": 0.75}
    engine = quadratics()
    planned = fr.method(fedseq(max_clients=3), **options)
    lost = frozenset(planned.plan(start(planned, engine), seeds.rng(engine.seed, "plan", 1)).chains[0].clients)
    broken = Fails(STEPS, 1, lost)
    every = fr.method(fedseqinter(max_clients=3, period=1), **options)
    with pytest.warns(fr.DroppedClients):
        alone = states_of(replace(planned, update=broken), engine, 3)
    with pytest.warns(fr.DroppedClients):
        inter = states_of(replace(every, update=broken), engine, 3)
    assert same_models(alone, inter)


def test_a_chain_whose_clients_all_fail_costs_time_where_it_is_waited_for():
    algorithm, engine = fr.method(fedseq(max_clients=3), local=STEPS, fraction=1.0), quadratics()
    lost = algorithm.plan(start(algorithm, engine), seeds.rng(engine.seed, "plan", 1)).chains[0].clients
    slow = Latency(Same(1e9), Given(tuple(1e-3 if client in lost else 1e3 for client in range(12))))
    broken = replace(algorithm, update=Fails(STEPS, 1, frozenset(lost)))
    with pytest.warns(fr.DroppedClients):
        (state,) = states_of(broken, engine, 1, slow)
    # three messages of the model's three numbers of four bytes, at 1e-3 Mbit/s
    assert state.clock == pytest.approx(3 * 3 * 4 * 8 / 1e3, rel=1e-6)


# --- a virtual clock --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("latency", [None, EQUAL])
def test_fedasyncseq_is_fedseqinter_to_the_bit_when_all_chains_take_equally_long(latency):
    options, groups = {"local": Sgd(batch=8, lr=0.05), "fraction": 0.5}, {"max_clients": 3, "period": 3}
    inter = states_of(fr.method(fedseqinter(**groups), **options), quadratics(), 8, latency)
    hasty = states_of(fr.method(fedasyncseq(**groups), **options), quadratics(), 8, latency)
    assert same_models(inter, hasty)
    assert not any(state.waiting for state in hasty)
    assert [state.clock for state in inter] == [state.clock for state in hasty]


def test_fedasyncseq_does_not_wait_for_the_slow():
    """Two slots on four groups of one client; client 3 is so slow that the other slot goes on without it."""
    federation = Federation.split(quadratic(clients=4, dimension=3, examples=10, seed=1), Natural())
    engine = Inline(federation, Task.of(Quadratic(), federation))
    # 50 examples (5 steps of all 10) take 1, 1, 1 and 100 seconds; messages take next to no time
    latency = Latency(Given((50.0, 50.0, 50.0, 0.5)), Same(1e6))
    algorithm = fr.method(fedasyncseq(max_clients=1, period=6), local=STEPS, fraction=0.5)
    states = states_of(algorithm, engine, 24, latency)
    for before, after in pairwise(states):
        busy = {outcome.chain.slot for outcome in before.waiting}
        assert after.log.chains == 2 - len(busy)
        took = after.clock - before.clock
        assert took == pytest.approx(1.0, abs=1e-3) or took == pytest.approx(100.0, abs=1e-3)
    stuck = [state for state in states if state.waiting]
    assert stuck, "client 3 was never drawn: choose another seed"
    assert all(outcome.chain.clients == (3,) for state in stuck for outcome in state.waiting)
    # every sixth round merges, and gives up what still runs
    assert all(len(state.batons) == 1 and not state.waiting for state in states[5::6])
    whole = states_of(fr.method(fedseqinter(max_clients=1, period=6), local=STEPS, fraction=0.5), engine, 24, latency)
    assert states[-1].clock < whole[-1].clock


def test_a_running_chain_is_merged_when_it_finishes_with_the_baton_it_began_from():
    """One fast and one slow group: the slow one's chain is planned once, and its baton comes back rounds later."""
    federation = Federation.split(quadratic(clients=2, dimension=3, examples=10, seed=1), Natural())
    engine = Inline(federation, Task.of(Quadratic(), federation))
    latency = Latency(Given((50.0, 50.0 / 3.5)), Same(1e6))  # a visit takes 1 and 3.5 seconds
    algorithm = fr.method(fedasyncseq(max_clients=1, period=100), local=STEPS, fraction=1.0)
    states = states_of(algorithm, engine, 4, latency)
    slow = next(slot for slot, group in states[0].memo["at"].items() if group == 1)
    model = states[0].waiting[0].baton.params
    assert [len(state.waiting) for state in states] == [1, 1, 1, 1]
    assert [state.clock for state in states] == pytest.approx([1, 2, 3, 3.5], abs=1e-3)
    assert states[2].batons[slow].weight == 0
    assert torch.equal(states[3].batons[slow].params, model)
    assert states[3].batons[slow].weight == 10


def test_synchronous_rounds_take_as_long_as_their_slowest_chain():
    federation = Federation.split(quadratic(clients=4, dimension=3, examples=10, seed=1), Natural())
    engine = Inline(federation, Task.of(Quadratic(), federation))
    latency = Latency(Given((50.0, 25.0, 10.0, 5.0)), Same(1e6))
    everybody = states_of(fr.method(fedavg(), local=STEPS, fraction=1.0), engine, 2, latency)
    assert [state.log.simulated_seconds for state in everybody] == pytest.approx([10, 10], abs=1e-3)
    chain = states_of(fr.method(fedcyclic(), local=STEPS, fraction=1.0), engine, 1, latency)
    assert chain[0].log.simulated_seconds == pytest.approx(1 + 2 + 5 + 10, abs=1e-3)


def test_the_clock_changes_no_model_of_a_synchronous_method():
    plain = states_of(fr.method(fedseq(max_clients=4), local=LOCAL), one_class_digits(), 3)
    timed = states_of(fr.method(fedseq(max_clients=4), local=LOCAL), one_class_digits(), 3, UNEQUAL)
    assert same_models(plain, timed)
    assert [state.log.simulated_seconds for state in plain] == [None] * 3
    assert all(state.log.simulated_seconds > 0 for state in timed)


def test_a_run_with_a_clock_repeats_itself():
    first = states_of(fr.method(fedasyncseq(max_clients=4), local=LOCAL, fraction=0.6), one_class_digits(), 12, UNEQUAL)
    again = states_of(fr.method(fedasyncseq(max_clients=4), local=LOCAL, fraction=0.6), one_class_digits(), 12, UNEQUAL)
    assert same_models(first, again)
    assert [state.clock for state in first] == [state.clock for state in again]
    assert any(state.waiting for state in first)


# --- a growing number of groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("growth", [Fixed(20), Linear(beta=20, alpha=1.0), Exponential(beta=500, alpha=0.1)])
@pytest.mark.parametrize("method", [partial(fedgsp, equal=False), fedseq2par])
def test_as_many_groups_as_clients_are_fedavg_to_the_bit(method, growth):
    alone = states_of(fr.method(fedavg(), local=LOCAL, fraction=0.3), one_class_digits(), 3)
    grown = states_of(fr.method(method(growth=growth), local=LOCAL, fraction=0.3), one_class_digits(), 3)
    assert same_models(alone, grown)


def test_the_groups_of_fedgsp_count_alike_whatever_their_examples():
    # Alg. 1, line 14. Three quadratic clients of 10, 20 and 30 examples after five steps each: computed elsewhere.
    alike = fr.method(fedgsp(growth=Fixed(3), traits=None), local=FULL_STEPS, fraction=1.0)
    np.testing.assert_allclose(models_of(alike, three(), 2)[0], [0.7286672917, -0.0316744792], atol=1e-6)
    np.testing.assert_allclose(models_of(alike, three(), 2)[1], [1.0060783769, -0.0508442844], atol=1e-6)
    by_examples = fr.method(fedgsp(growth=Fixed(3), traits=None, equal=False), local=FULL_STEPS, fraction=1.0)
    assert abs(models_of(by_examples, three(), 1)[0] - [0.7286672917, -0.0316744792]).max() > 0.1


def test_one_group_of_all_is_fedcyclic_to_the_bit():
    ring = states_of(fr.method(fedcyclic(), local=LOCAL, fraction=1.0), one_class_digits(), 3)
    one = states_of(fr.method(fedgsp(growth=Fixed(1)), local=LOCAL, fraction=1.0), one_class_digits(), 3)
    assert same_models(ring, one)


def test_fedseq2par_that_does_not_grow_is_fedseq_with_that_many_groups():
    engine = one_class_digits()
    grown = start(fr.method(fedseq2par(growth=Fixed(5), traits=ClassHistogram()), local=LOCAL), engine)
    assert [len(group) for group in grown.memo["groups"]] == [4] * 5
    later = states_of(fr.method(fedseq2par(growth=Fixed(5), traits=ClassHistogram()), local=LOCAL), engine, 3)
    assert all(state.memo["groups"] == grown.memo["groups"] for state in later)


def groups_by_round(algorithm: Algorithm, engine: Inline, rounds: int) -> list[tuple]:
    first = start(algorithm, engine)
    later = train(algorithm, engine, rounds=rounds - 1, state=first)
    return [state.memo["groups"] for state in (first, *later)]


def test_groups_grow_as_the_function_says_and_stop_at_the_clients():
    growth = Logarithmic(beta=4, alpha=2.0)
    found = groups_by_round(fr.method(fedseq2par(growth=growth), local=STEPS), quadratics(), 8)
    # 4⌊2 ln r + 1⌋ is 4, 8, 12, 12, 16, …: with 12 clients it stops at 12
    assert [len(groups) for groups in found] == [4, 8, 12, 12, 12, 12, 12, 12]
    for groups in found:
        assert sorted(client for group in groups for client in group) == list(range(12))
        assert max(map(len, groups)) - min(map(len, groups)) <= 1


@dataclass(frozen=True)
class Falling:
    """Fewer and fewer groups."""

    least: int = 1

    def __call__(self, round: int, /) -> int:
        return max(7 - 2 * round, self.least)


def test_a_growth_that_shrinks_is_followed_and_one_without_groups_refused():
    found = groups_by_round(fr.method(fedseq2par(growth=Falling()), local=STEPS), quadratics(), 4)
    assert [len(groups) for groups in found] == [5, 3, 1, 1]
    with pytest.raises(BadInput, match="Falling wants in round 4 must be at least 1, not -1"):
        groups_by_round(fr.method(fedseq2par(growth=Falling(-9)), local=STEPS), quadratics(), 4)


def test_fedgsp_regroups_every_round_and_fedseq2par_only_when_the_number_grows():
    growth = Linear(beta=3, alpha=0.5)  # 3, 3, 6, 6, 9, 9
    every = groups_by_round(fr.method(fedgsp(growth=growth, traits=None), local=STEPS), quadratics(), 6)
    grown = groups_by_round(fr.method(fedseq2par(growth=growth), local=STEPS), quadratics(), 6)
    assert [a == b for a, b in pairwise(every)] == [False] * 5
    assert [a == b for a, b in pairwise(grown)] == [True, False, True, False, True]


def test_icg_gives_every_group_of_one_class_clients_every_class():
    engine = one_class_digits(clients=40)
    counts = engine.federation.label_counts()
    for groups in groups_by_round(fr.method(fedgsp(growth=Fixed(4)), local=LOCAL), engine, 3):
        covered = [(counts[list(group)].sum(axis=0) > 0).sum() for group in groups]
        assert min(covered) >= 9


def test_groups_made_beside_the_round_are_those_made_at_once():
    algorithm, engine = fr.method(fedgsp(growth=Linear(beta=2, alpha=0.5)), local=LOCAL), one_class_digits()
    found = groups_by_round(algorithm, engine, 5)
    memo = start(algorithm, engine).memo
    traits = Traits.of(memo["traits"])
    made = [algorithm.plan.groups(traits, engine.sizes, memo["seed"], round) for round in range(1, 6)]
    assert found == made


def test_naive_groups_stay_and_train_in_one_order_unless_shuffled():
    def orders(algorithm: Algorithm) -> list[dict[frozenset, tuple]]:
        engine, found = one_class_digits(), []
        state = start(algorithm, engine)
        for round in range(1, 4):
            chains = algorithm.plan(state, seeds.rng(engine.seed, "plan", round)).chains
            found.append({frozenset(chain.clients): chain.clients for chain in chains})
            state = advance(algorithm, engine, state)
        return found

    for method in (naivegsp, naivegsp_icg):
        first, *others = orders(fr.method(method(groups=4), local=LOCAL, fraction=1.0))
        assert all(other == first for other in others)
        assert any(clients != tuple(sorted(clients)) for clients in first.values())
        first, *others = orders(fr.method(method(groups=4, shuffle=True), local=LOCAL, fraction=1.0))
        assert all(other.keys() == first.keys() and other != first for other in others)


@pytest.mark.parametrize("method", [naivegsp, naivegsp_icg])
def test_more_naive_groups_than_clients_are_refused_while_a_growth_stops_at_them(method):
    with pytest.raises(BadInput, match="groups = 21 but there are 20 clients: at most that works"):
        start(fr.method(method(groups=21), local=LOCAL), one_class_digits())
    grown = start(fr.method(fedgsp(growth=Fixed(21)), local=LOCAL), one_class_digits())
    assert len(grown.memo["groups"]) == 20


def test_what_the_group_managers_relay_is_two_messages_and_is_told_apart():
    """FedGSP Eq. 17: every one of the κK clients of a round gets the model from the server and sends it back."""
    options, groups = {"local": STEPS, "fraction": 0.5}, {"growth": Fixed(4), "traits": None}
    (relayed,) = states_of(fr.method(fedgsp(**groups), **options), quadratics(), 1)
    (direct,) = states_of(fr.method(fedgsp(**groups, relayed=False), **options), quadratics(), 1)
    assert torch.equal(model(relayed), model(direct))
    assert relayed.log.messages == {"server_to_client": 6, "client_to_server": 6, "client_to_client": 0}
    assert relayed.log.relayed == {"messages": 8, "bytes": 8 * 3 * 4}
    assert sum(relayed.log.bytes.values()) == 2 * 0.5 * 12 * (3 * 4)
    assert direct.log.messages == {"server_to_client": 2, "client_to_server": 2, "client_to_client": 4}
    assert direct.log.relayed == {"messages": 0, "bytes": 0}


# --- all of them ------------------------------------------------------------------------------------------------------

ALL = {
    "fedseqinter": (fr.method(fedseqinter(max_clients=4, period=4), local=LOCAL, fraction=0.6), None),
    "fedasyncseq": (fr.method(fedasyncseq(max_clients=4, period=5), local=LOCAL, fraction=0.6), UNEQUAL),
    "fedseq2par": (fr.method(fedseq2par(growth=Linear(beta=2, alpha=0.5), traits=ClassHistogram()), local=LOCAL), None),
    "fedgsp": (fr.method(fedgsp(growth=Logarithmic(beta=2, alpha=1.0)), local=LOCAL), UNEQUAL),
    "naivegsp": (fr.method(naivegsp(groups=4), local=LOCAL), None),
    "naivegsp_icg": (fr.method(naivegsp_icg(groups=4), local=LOCAL), None),
}


@pytest.mark.parametrize("name", ALL)
def test_a_run_that_is_saved_and_taken_up_again_at_any_round_ends_at_the_same_bits(name, tmp_path):
    algorithm, latency = ALL[name]
    engine = one_class_digits()
    whole = states_of(algorithm, engine, 8, latency)
    state = start(algorithm, engine, latency)
    for round in range(8):
        checkpoint.save(tmp_path, state, engine.memories()[1])
        loaded, memories = checkpoint.load(tmp_path)
        engine = one_class_digits()
        engine.remember(loaded.round, memories)
        state = advance(algorithm, engine, loaded, latency)
        assert torch.equal(model(state), model(whole[round]))
        assert state.clock == whole[round].clock
        assert len(state.waiting) == len(whole[round].waiting)


@pytest.mark.parametrize("name", ALL)
def test_every_method_can_be_pickled(name):
    algorithm, _ = ALL[name]
    assert pickle.loads(pickle.dumps(algorithm)) == algorithm


def test_impossible_periods_and_growths_are_refused():
    with pytest.raises(BadInput, match="period must be at least 1"):
        fr.method(fedseqinter(period=0))
    with pytest.raises(BadInput, match="groups must be at least 1"):
        fr.method(naivegsp(groups=0))
    with pytest.raises(BadInput, match="fraction must be above 0 and at most 1"):
        fr.method(fedgsp(), fraction=0.0)
