"""Clustering by similarity: the tree, the memory of gradients, the thread beside the round, and the ten digits."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, advance, config, deployed, start, train
from fedrelay.algorithms import (
    fedadam,
    fedasyncseq,
    fedavg,
    fedcyclic,
    feddyn,
    fedgsp,
    fedprox,
    fedseq,
    fedseq2par,
    fedseqinter,
    scaffold,
)
from fedrelay.algorithms.feddyn import DynamicMerge
from fedrelay.algorithms.scaffold import ControlMerge
from fedrelay.data import Dirichlet, Natural, OneClass, digits, quadratic
from fedrelay.engines import Inline, Pool
from fedrelay.merges import Mean, Median, Momentum, PlainMean
from fedrelay.models import Mlp, Quadratic
from fedrelay.plans import Linear
from fedrelay.plans.sampling import SAMPLERS, BySimilarity, BySize, Full, Multinomial, Original, Target
from fedrelay.plans.sampling import similarity as similar
from fedrelay.plans.sampling import ward as trees
from fedrelay.plans.sampling.ward import condensed, link, ward
from fedrelay.runs import checkpoint
from fedrelay.runs.latency import Given, Latency, Same
from fedrelay.runs.surveys import ClientSurvey
from fedrelay.types import Baton, Chain, Outcome, Report, State

LOCAL = Sgd(steps=10, batch=12, lr=0.1)


def digit_engine(seed: int = 0) -> Inline:
    """100 clients of one digit, ten of each: client i has digit i mod 10."""
    federation = Federation.split(digits(), OneClass(size=12), 100, seed)
    return Inline(federation, Task.of(Mlp(hidden=(16,)), federation), seed)


def survey() -> ClientSurvey:
    """What a sampler is told of its clients at the beginning."""
    engine = digit_engine()
    return ClientSurvey(engine, engine.task.init(0))


def outcome(clients: tuple[int, ...], gradient: list[float], lost: tuple[int, ...] = ()) -> Outcome:
    """What a chain of these clients did to a model of zeros."""
    vector = torch.tensor(gradient)
    reports = tuple(Report(client, 1) for client in clients if client not in lost)
    return Outcome(Chain(Baton(torch.zeros(len(vector))), clients), Baton(vector), reports)


def learned(sampler: BySimilarity, groups, *outcomes: Outcome):
    """The memo after a round with these outcomes and another without any, so that the tree knows them."""
    memo = a_round(sampler, sampler.init(survey()), groups, outcomes)
    memo = a_round(sampler, memo, groups, ())
    return sampler.begin(memo, groups)[0]


def a_round(sampler: BySimilarity, memo, groups, outcomes: Sequence[Outcome]):
    """The memo after a round with these outcomes."""
    begun, coming = sampler.begin(memo, groups)
    return sampler.learn(begun, outcomes, coming)


def singles(count: int):
    return tuple((client,) for client in range(count))


def owners(urns) -> list[set[int]]:
    return [set(urn.owners.tolist()) for urn in urns.urns]


@pytest.mark.parametrize("similarity", ["arccos", "l2", "l1"])
@pytest.mark.parametrize("sketch", [None, 64])
def test_clients_with_like_gradients_share_an_urn(similarity, sketch):
    if (similarity, sketch) == ("l1", 64):
        return
    rng = np.random.default_rng(0)
    kinds = rng.standard_normal((10, 500))
    # the same direction in different lengths would not be alike in L1 and L2, so the noise is all that differs
    gradients = [kinds[i % 10] + 0.1 * rng.standard_normal(500) for i in range(100)]
    sampler = BySimilarity(similarity=similarity, sketch=sketch)
    memo = learned(sampler, singles(100), *(outcome((i,), g.tolist()) for i, g in enumerate(gradients)))
    found = owners(sampler.distributions([12] * 100, 10, memo))
    assert sorted(map(sorted, found)) == [list(range(digit, 100, 10)) for digit in range(10)]


def test_arccos_does_not_mind_the_length_of_a_gradient_and_l2_does():
    gradients = [[1.0, 0.0], [9.0, 0.0], [0.0, 1.0], [0.0, 9.0]]
    outcomes = [outcome((i,), g) for i, g in enumerate(gradients)]
    angles = learned(BySimilarity("arccos"), singles(4), *outcomes)
    assert sorted(map(sorted, owners(BySimilarity().distributions([1] * 4, 2, angles)))) == [[0, 1], [2, 3]]
    lengths = learned(BySimilarity("l2"), singles(4), *outcomes)
    assert {0, 2} in owners(BySimilarity("l2").distributions([1] * 4, 2, lengths))


def test_ward_on_l2_distances_is_wards_method_on_the_gradients_themselves():
    rows = np.random.default_rng(3).standard_normal((300, 7))  # more than one block of distances
    expected = linkage(rows, "ward")[:, :2].astype(int)
    assert np.array_equal(ward(rows, range(300), 300, "l2"), expected)


@pytest.mark.parametrize(("similarity", "metric"), [("l2", "euclidean"), ("l1", "cityblock"), ("arccos", None)])
def test_distances_are_those_of_the_definition_with_zero_vectors_at_the_end(similarity, metric):
    rows = np.random.default_rng(4).standard_normal((5, 3))
    whole = np.vstack([rows, np.zeros((2, 3))])

    def angle(a, b):
        if not a.any() or not b.any():
            return 0 if a.any() == b.any() else np.pi / 2
        return np.arccos(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    np.testing.assert_allclose(condensed(rows, 7, similarity), pdist(whole, metric or angle), atol=1e-7)


@pytest.mark.parametrize("similarity", ["arccos", "l2", "l1"])
def test_distances_of_many_long_rows_are_those_of_all_at_once(similarity, monkeypatch):
    rows = np.random.default_rng(4).standard_normal((11, 10)).astype(np.float32)
    at_once = condensed(rows.astype(np.float64), 13, similarity)
    monkeypatch.setattr(trees, "BLOCK", 4)
    monkeypatch.setattr(trees, "WIDE", 3)
    np.testing.assert_allclose(condensed(list(rows), 13, similarity), at_once, rtol=1e-12)


def test_clients_never_drawn_stay_together_and_apart_from_the_others():
    known = [outcome((i,), [np.cos(i), np.sin(i), 0.5]) for i in range(4)]
    sampler = BySimilarity()
    memo = learned(sampler, singles(8), *known)
    assert sorted(map(sorted, owners(sampler.distributions([1] * 8, 2, memo)))) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_all_gradients_equal_or_zero_is_no_obstacle():
    for gradient in ([1.0, 1.0], [0.0, 0.0]):
        memo = learned(BySimilarity(), singles(6), *(outcome((i,), gradient) for i in range(6)))
        urns = BySimilarity().distributions([2] * 6, 3, memo)
        assert sorted(map(len, owners(urns))) == [2, 2, 2]


def test_only_clients_that_took_part_are_remembered_and_a_newer_gradient_replaces_the_old():
    sampler = BySimilarity(when="after")
    first = [outcome((3,), [1.0, 0.0]), outcome((5,), [0.0, 1.0]), outcome((7,), [9.0, 9.0], (7,))]
    memo = a_round(sampler, sampler.init(survey()), singles(9), first)
    assert {client: memo["gradients"][number].tolist() for client, number in memo["last"].items()} == {
        3: [1.0, 0.0],
        5: [0.0, 1.0],
    }
    memo = a_round(sampler, memo, singles(9), [outcome((3,), [2.0, 2.0])])
    assert {client: memo["gradients"][number].tolist() for client, number in memo["last"].items()} == {
        3: [2.0, 2.0],
        5: [0.0, 1.0],
    }
    assert len(memo["gradients"]) == 2


def test_a_group_stands_for_the_mean_of_what_its_clients_last_did():
    gradients = {0: torch.tensor([4.0, 0.0]), 1: torch.tensor([0.0, 2.0])}
    rows = similar.represented([(0, 1), (2, 3), (0, 2), (4, 5)], {0: 0, 1: 0, 2: 1, 3: 1}, gradients)
    np.testing.assert_array_equal(rows, [[4, 0], [0, 2], [2, 1], [0, 0]])


def test_other_groups_get_a_tree_of_their_own_at_once():
    sampler = BySimilarity()
    pairs = ((0, 1), (2, 3), (4, 5), (6, 7))
    memo = learned(sampler, pairs, *(outcome(pair, [1.0, float(i % 2), 0.0]) for i, pair in enumerate(pairs)))
    crossed = ((0, 4), (1, 5), (2, 6), (3, 7))  # two of each kind
    memo, _ = sampler.begin(memo, crossed)
    assert sorted(map(sorted, owners(sampler.distributions([2] * 4, 2, memo)))) == [[0, 1], [2, 3]]


def test_a_sketch_errs_as_much_as_it_says():
    rng = np.random.default_rng(5)
    size, kept = 20_000, 400
    sampler = BySimilarity(sketch=kept)
    errors, shares = [], []
    for cosine in (0.0, 0.5, 0.9):
        for _ in range(40):
            a, noise = rng.standard_normal((2, size))
            b = cosine * a + np.sqrt(1 - cosine**2) * noise
            true = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
            u, v = (sampler.kept(torch.tensor(x, dtype=torch.float32)).double().numpy() for x in (a, b))
            found = u @ v / np.linalg.norm(u) / np.linalg.norm(v)
            errors.append((found - true) * np.sqrt(kept) / (1 - true**2))
            shares.append((np.linalg.norm(u - v) / np.linalg.norm(a - b) - 1) * np.sqrt(2 * kept))
    for scaled in (np.array(errors), np.array(shares)):  # of standard error one, as stated
        assert 0.8 < np.sqrt(np.mean(scaled**2)) < 1.25
        assert abs(scaled.mean()) < 0.35
    assert sampler.kept(torch.zeros(size)).shape == (kept,)
    assert sampler.kept(torch.ones(300)).shape == (300,)  # a small model is kept as it is


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"similarity": "cosine"}, "similarity must be arccos, l2 or l1, not 'cosine'"),
        ({"when": "before"}, "when must be beside or after, not 'before'"),
        ({"variant": "papers"}, "variant must be paper or published, not 'papers'"),
        ({"sketch": 0}, "sketch must be at least 1, not 0"),
        ({"sketch": 1.5}, "sketch must be a whole number, not 1.5"),
    ],
)
def test_wrong_words_and_numbers_are_refused_from_python_too(given, message):
    with pytest.raises(BadInput, match=message):
        BySimilarity(**given)


def test_a_sketch_for_l1_is_refused():
    with pytest.raises(BadInput, match="not L1: use arccos or l2"):
        BySimilarity(similarity="l1", sketch=100)


def test_the_next_clustering_runs_beside_the_round_and_is_plain_data_after_it():
    sampler = BySimilarity()
    memo, coming = sampler.begin(sampler.init(survey()), singles(4))
    assert isinstance(coming, Future)
    after = sampler.learn(memo, [outcome((2,), [1.0, 2.0])], coming)
    for known in (memo, after):
        assert not any(isinstance(value, Future) for value in known.values())
    assert after["tree"].shape == (3, 2)


def model(state: State) -> torch.Tensor:
    """The one model that would be used now."""
    (params,) = deployed(state).vectors
    return params


def models(algorithm, rounds: int, engine: Inline | None = None) -> list[torch.Tensor]:
    return [model(state) for state in train(algorithm, engine or digit_engine(), rounds=rounds)]


def test_the_bits_are_the_same_whether_or_not_the_clustering_ran_beside(monkeypatch):
    algorithm = fr.method(fedavg(), local=LOCAL, fraction=0.1, sampler=BySimilarity())
    beside = models(algorithm, 8)

    def at_once(call, *args, **kwargs):
        future: Future = Future()
        future.set_result(call(*args, **kwargs))
        return future

    monkeypatch.setattr(similar, "in_thread", at_once)
    assert all(torch.equal(a, b) for a, b in zip(beside, models(algorithm, 8), strict=True))


def test_a_clustering_in_another_process_is_the_same():
    distances = pdist(np.random.default_rng(6).standard_normal((60, 4)))
    assert np.array_equal(link(distances, elsewhere=True), link(distances, elsewhere=False))


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_goes_on_from_a_checkpoint_to_the_same_bits(name, tmp_path):
    algorithm = fr.method(fedavg(), local=LOCAL, fraction=0.1, sampler=SAMPLERS[name]())
    whole = models(algorithm, 5)[-1]
    *_, middle = train(algorithm, digit_engine(), rounds=3)
    checkpoint.save(tmp_path, middle, {})
    saved, _ = checkpoint.load(tmp_path)
    engine = digit_engine()
    engine.remember(3, {})
    *_, last = train(algorithm, engine, rounds=5, state=saved)
    assert torch.equal(model(last), whole)


@pytest.mark.parametrize(
    ("change", "when"), [(fedavg(), "after"), (fedseq2par(growth=Linear(beta=3, alpha=1.0)), "beside")]
)
def test_similarity_goes_on_from_any_round_and_on_another_engine_to_the_same_bits(change, when, tmp_path):
    algorithm = fr.method(change, local=LOCAL, fraction=0.34, sampler=BySimilarity(when=when, sketch=50))
    federation = Federation.split(digits(), Dirichlet(alpha=0.0), 12, 0)
    task = Task.of(Mlp(hidden=(8,)), federation)
    whole = [model(state) for state in train(algorithm, Inline(federation, task, 0), rounds=6)]
    with Pool(federation, task, 0, workers=1) as pool:
        state = start(algorithm, pool)
        for round in range(6):  # every other round in the pool, and a checkpoint before each
            checkpoint.save(tmp_path, state, {})
            saved, _ = checkpoint.load(tmp_path)
            engine = pool if round % 2 else Inline(federation, task, 0)
            engine.remember(round, {})
            state = advance(algorithm, engine, saved)
            assert torch.equal(model(state), whole[round]), round


def distinct_digits(algorithm, rounds: int) -> list[int]:
    return [len({i % 10 for i in s.participants}) for s in train(algorithm, digit_engine(), rounds=rounds)]


def test_similarity_finds_the_ten_digits():
    engine = digit_engine()
    *_, last = train(fr.method(fedavg(), local=LOCAL, fraction=0.1, sampler=BySimilarity()), engine, rounds=80)
    assert len(last.memo["sampler"]["last"]) == 100
    urns = BySimilarity().distributions([12] * 100, 10, last.memo["sampler"])
    mixed = [len({client % 10 for client in urn}) for urn in owners(urns)]
    assert sum(mixed) <= 13, mixed  # ten urns of one digit would be 10


def test_target_sees_every_digit_every_round_and_multinomial_does_not():
    assert distinct_digits(fr.method(fedavg(), local=LOCAL, fraction=0.1, sampler=Target()), 4) == [10] * 4
    assert np.mean(distinct_digits(fr.method(fedavg(), local=LOCAL, fraction=0.1, sampler=Multinomial()), 6)) < 8


def test_target_cannot_be_asked_without_knowing_the_classes():
    with pytest.raises(BadInput, match="must know the clients' classes"):
        Target().distributions([1, 1], 1)


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_draw_among_groups_and_along_a_ring(name):
    federation = Federation.split(digits(), Dirichlet(alpha=0.0), 20, 0)
    engine = Inline(federation, Task.of(Mlp(hidden=(16,)), federation), 0)
    changes = [fedseq(max_clients=2), fedcyclic()] if name != "original" else [fedseq(max_clients=2)]
    for change in changes:
        algorithm = fr.method(change, local=LOCAL, fraction=0.5, sampler=SAMPLERS[name]())
        *_, last = train(algorithm, engine, rounds=3)
        assert last.log.clients >= 2
        assert last.log.sampling["distinct"] >= 1


def test_weights_of_clustered_draws_reach_the_merge():
    engine = digit_engine()
    algorithm = fr.method(fedavg(), local=LOCAL, fraction=0.1, sampler=Multinomial())
    state = start(algorithm, engine)
    for seed in range(20):
        chains = algorithm.plan(state, np.random.default_rng(seed)).chains
        assert sum(chain.weight for chain in chains) == pytest.approx(1)
        assert len({chain.clients for chain in chains}) == len(chains)
    twice = [chain for seed in range(20) for chain in algorithm.plan(state, np.random.default_rng(seed)).chains]
    assert any(chain.weight == 2 / 10 for chain in twice)


def back(clients: tuple[int, ...], start: list[float], end: list[float], weight: float, **uplink) -> Outcome:
    """A chain of these clients that counts so much, from one model to another."""
    sent = {key: torch.tensor(value) for key, value in uplink.items()}
    chain = Chain(Baton(torch.tensor(start)), clients, weight=weight)
    return Outcome(chain, Baton(torch.tensor(end), 5.0), tuple(Report(client, 5, uplink=sent) for client in clients))


def merged(merge, start: list[float], *outcomes: Outcome) -> State:
    shared, server = merge.init(torch.tensor(start), 4)
    return merge(State(0, (Baton(torch.tensor(start)),), shared, server, {}), outcomes)


def test_in_scaffold_who_is_drawn_twice_counts_twice_in_the_model_and_once_in_the_controls():
    # three draws among four clients: client 2 twice, client 0 once
    twice = back((2,), [1.0, 1.0], [4.0, 1.0], 2 / 3, control=[0.4, 0.0])
    once = back((0,), [1.0, 1.0], [1.0, 7.0], 1 / 3, control=[0.0, 0.8])
    after = merged(ControlMerge(), [1.0, 1.0], twice, once)
    np.testing.assert_allclose(model(after), [1 + 2 / 3 * 3, 1 + 1 / 3 * 6], rtol=1e-6)
    np.testing.assert_allclose(after.shared["control"], [0.4 / 4, 0.8 / 4], rtol=1e-6)


def test_in_feddyn_who_is_drawn_twice_counts_twice_in_the_mean_and_once_in_the_sum():
    twice = back((2,), [1.0, 1.0], [4.0, 1.0], 2 / 3)
    once = back((0,), [1.0, 1.0], [1.0, 7.0], 1 / 3)
    after = merged(DynamicMerge(alpha=0.5), [1.0, 1.0], twice, once)
    h = np.array([-0.5 / 4 * 3, -0.5 / 4 * 6])
    np.testing.assert_allclose(after.server["h"], h, rtol=1e-6)
    np.testing.assert_allclose(model(after), [3 - h[0] / 0.5, 3 - h[1] / 0.5], rtol=1e-6)


@pytest.mark.parametrize("merge", [Mean(), PlainMean(), Momentum(lr=1.0, momentum=0.9)])
def test_in_means_and_server_steps_who_is_drawn_twice_counts_twice(merge):
    twice, once = back((2,), [1.0, 1.0], [4.0, 1.0], 2 / 3), back((0,), [1.0, 1.0], [1.0, 7.0], 1 / 3)
    np.testing.assert_allclose(model(merged(merge, [1.0, 1.0], twice, once)), [3, 3], rtol=1e-6)


def test_in_a_median_everybody_counts_once():
    ends = [([4.0], 3 / 5), ([1.0], 1 / 5), ([2.0], 1 / 5)]
    outcomes = [back((client,), [0.0], end, weight) for client, (end, weight) in enumerate(ends)]
    np.testing.assert_allclose(model(merged(Median(), [0.0], *outcomes)), [2.0])


def test_who_is_drawn_twice_is_visited_once_by_scaffold():
    engine = digit_engine()
    algorithm = fr.method(scaffold(), local=LOCAL, fraction=0.1, sampler=Multinomial())
    for state in train(algorithm, engine, rounds=6):
        assert state.log.visits == state.log.clients == state.log.sampling["distinct"]
        controls = torch.stack([memory["control"] for memory in engine.memories()[1].values()])
        # c is the mean of all clients' controls only if each was added once
        np.testing.assert_allclose(state.shared["control"], controls.sum(dim=0) / 100, atol=1e-5)
    assert state.log.sampling["expected_distinct"] < 10


def test_a_chain_that_is_late_teaches_similarity_nothing_before_it_comes():
    federation = Federation.split(quadratic(clients=2, dimension=3, examples=10, seed=1), Natural())
    engine = Inline(federation, Task.of(Quadratic(), federation))
    latency = Latency(Given((50.0, 50.0 / 3.5)), Same(1e6))  # a visit takes 1 and 3.5 seconds
    local = Sgd(steps=5, batch=0, lr=0.1)
    algorithm = fr.method(fedasyncseq(max_clients=1, period=9), local=local, fraction=1.0, sampler=BySimilarity())
    states = list(train(algorithm, engine, rounds=4, latency=latency))
    known = [sorted(state.memo["sampler"]["last"]) for state in states]
    assert known == [[0], [0], [0], [0, 1]]
    assert {outcome.chain.weight for state in states for outcome in state.waiting} == {0.5}
    # two slots, so a draw counts a half: the fast one was drawn three times, the slow one once
    assert sorted(outcome.chain.weight for outcome in states[3].server["slots"].values()) == [0.5, 1.5]


def test_full_participation_is_fedavg_with_everybody():
    everybody = models(fr.method(fedavg(), local=LOCAL, fraction=1.0), 2)[-1]
    np.testing.assert_allclose(
        models(fr.method(fedavg(), local=LOCAL, fraction=0.1, sampler=Full()), 2)[-1], everybody, atol=1e-6
    )


def test_the_original_keeps_the_old_model_for_those_who_were_not_drawn():
    engine = digit_engine()
    algorithm = fr.method(fedavg(), local=LOCAL, fraction=0.1, sampler=Original())
    state = start(algorithm, engine)
    chains = algorithm.plan(state, np.random.default_rng(0)).chains
    outcomes = list(engine.run(algorithm.update, chains, {}, 1))
    found = model(algorithm.merge(state, outcomes))
    # Eq. 3: ten of 100 equal clients, so nine tenths are the old model
    expected = 0.9 * model(state) + sum(0.01 * outcome.baton.params for outcome in outcomes)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_record_says_how_the_draw_was_and_how_many_classes_it_saw(tmp_path):
    tables = {
        "rounds": 3,
        "data": {"name": "digits", "clients": 100, "partition": {"name": "one_class", "size": 12}},
        "model": {"name": "mlp", "hidden": [8]},
        "local": {"steps": 2},
        "algorithm": {"name": "fedavg", "fraction": 0.1, "sampler": {"name": "by_similarity", "similarity": "l2"}},
    }
    experiment = config.build(tables)
    assert experiment.algorithm.plan.sampler == BySimilarity(similarity="l2")
    lines = list(experiment.record(tmp_path / "run").run())
    for line in lines:
        # ten of a hundred equal clients, one from each urn of ten: Var = (1/10²) (1/10)(9/10) each, nobody twice
        assert line.sampling["expected_spread"] == pytest.approx(100 * 0.09 / 100)
        assert line.sampling["spread"] == pytest.approx(10 * 0.09**2 + 90 * 0.01**2)
        assert line.sampling["distinct"] == 10 == pytest.approx(line.sampling["expected_distinct"])
        assert 1 <= line.classes <= 10
    again = config.build(config.read(tmp_path / "run" / "config.toml"))
    assert again.algorithm.plan.sampler == BySimilarity(similarity="l2")


def test_an_unknown_sampler_is_refused_with_the_nearest_name():
    with pytest.raises(BadInput, match="did you mean 'by_size'"):
        config.build(
            {"data": {"name": "digits"}, "model": {"name": "mlp"}, "algorithm": {"name": "fedavg", "sampler": "bysize"}}
        )


@pytest.mark.parametrize("similarity", ["arccos", "l2", "l1"])
@pytest.mark.filterwarnings("ignore:The symmetric non-negative hollow observation matrix")
def test_the_published_variant_takes_rows_of_distances_for_observations(similarity):
    gradients = np.vstack([np.random.default_rng(8).standard_normal((20, 6)), np.zeros((10, 6))]).astype(np.float32)

    def apart(a, b):
        if similarity == "l1":
            return np.abs(a - b).sum()
        if similarity == "l2":
            return ((a - b) ** 2).sum()
        both = np.linalg.norm(a) * np.linalg.norm(b)
        return np.arccos(min(a @ b / both, 1)) if both else 0

    square = np.array([[apart(a, b) for b in gradients.astype(float)] for a in gradients.astype(float)])
    np.fill_diagonal(square, 0)
    outcomes = [outcome((i,), g.tolist()) for i, g in enumerate(gradients[:20])]
    memo = learned(BySimilarity(similarity, variant="published"), singles(30), *outcomes)
    np.testing.assert_array_equal(memo["tree"], linkage(square, "ward")[:, :2])


@pytest.mark.parametrize(
    "name", ["fedgsp", "fedseq2par", "fedseqinter", "fedprox", "fedadam", "scaffold", "fedseq+feddyn"]
)
def test_clustered_sampling_goes_with_other_methods_by_name(name, tmp_path):
    tables = {
        "rounds": 4,
        "data": {"name": "digits", "clients": 20, "partition": {"name": "dirichlet", "alpha": 0.0}},
        "model": {"name": "mlp", "hidden": [8]},
        "local": {"steps": 2},
        "algorithm": {"name": name, "fraction": 0.5, "sampler": "by_similarity"},
    }
    experiment = config.build(tables)
    lines = list(experiment.record(tmp_path / "run").run())
    assert len(lines) == 4
    state, _ = checkpoint.load(tmp_path / "run" / "checkpoint")
    assert len(state.memo["sampler"]["last"]) >= 2  # whoever took part is remembered


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: fr.method(fedseqinter(), sampler=Original()),
            "original needs the merge with_absent, but here models of many rounds",
        ),
        (
            lambda: fr.method(fedcyclic(), sampler=Original()),
            "original needs the merge with_absent, but one chain of all replaces",
        ),
        (lambda: fr.method(fedasyncseq(), sampler=Original()), "original needs the merge with_absent"),
        (lambda: fr.method(fedasyncseq(), sampler=Full()), "full takes everybody at once"),
        (
            lambda: fr.method(fedavg(), sampler="by_size"),
            "sampler must be a sampler, such as BySize\\(\\), not 'by_size'",
        ),
        (lambda: fr.method(fedseq(), sampler=BySimilarity), "sampler must be a sampler, such as BySize"),
        (lambda: fr.method(fedcyclic(), sampler=None), "sampler must be a sampler, such as BySize"),
        (lambda: fr.method(fedseq2par(), sampler="md"), "sampler must be a sampler, such as BySize"),
    ],
)
def test_a_sampler_that_makes_no_sense_is_refused_when_the_method_is_made(make, message):
    with pytest.raises(BadInput, match=message):
        make()


@pytest.mark.parametrize("recipe", [fedgsp, fedprox, scaffold, feddyn, fedadam])
def test_methods_that_do_not_speak_of_samplers_take_one(recipe):
    assert fr.method(recipe(), sampler=BySize()).plan.sampler == BySize()


@pytest.mark.parametrize(("name", "merge"), [("fedavgm", "Momentum"), ("feddyn", "DynamicMerge")])
def test_a_method_with_a_merge_of_its_own_refuses_the_original_sampler(name, merge):
    tables = {"data": {"name": "digits"}, "model": {"name": "mlp"}, "algorithm": {"name": name, "sampler": "original"}}
    with pytest.raises(
        BadInput, match=f"original needs the merge with_absent, but {merge}.* says how models are merged"
    ):
        config.build(tables)
