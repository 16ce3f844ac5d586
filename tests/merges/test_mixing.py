"""Mixing matrices and graphs: what they are by hand, their laws, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedrelay import BadInput
from fedrelay.merges import GRAPHS, Mixing
from fedrelay.merges.graphs import Circle, Complete, Edges, Exponential, Matrix, RandomNeighbours, Torus
from fedrelay.merges.mixing import metropolis
from fedrelay.types import Baton, Chain, Outcome, Report, State

ANY = np.random.default_rng(0)


def state_of(models: torch.Tensor, mixing: Mixing, round: int = 0) -> State:
    shared, server = mixing.init(models[0], len(models))
    return State(round, tuple(Baton(model) for model in models), shared, server, {})


def outcomes_of(models: torch.Tensor, sizes: list[int], lost: tuple[int, ...] = ()) -> list[Outcome]:
    chains = [Chain(Baton(torch.zeros(2)), (client,), slot=client, holder=client) for client in range(len(models))]
    return [
        Outcome(chain, Baton(model, size), (Report(chain.slot, size),))
        for chain, model, size in zip(chains, models, sizes, strict=True)
        if chain.slot not in lost
    ]


def mix(mixing: Mixing, models: torch.Tensor, sizes: list[int] | None = None) -> torch.Tensor:
    """The models after they were mixed once."""
    before = state_of(torch.zeros_like(models), mixing)
    after = mixing(before, outcomes_of(models, sizes or [1] * len(models)))
    return torch.stack([baton.params for baton in after.batons])


def test_a_path_of_three_has_the_metropolis_weights_of_the_literature():
    found = metropolis(Edges(((0, 1), (1, 2))).links(3, ANY))
    np.testing.assert_allclose(found, np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3)


@pytest.mark.parametrize(
    ("graph", "clients", "neighbours"),
    [
        (Complete(), 5, [1, 2, 3, 4]),
        (Circle(), 5, [1, 4]),
        (Circle(), 2, [1]),
        (Torus(), 6, [1, 2, 3]),  # 2 rows of 3: above is below
        (Torus(), 12, [1, 3, 4, 8]),  # 3 rows of 4
        (Torus(rows=2), 12, [1, 5, 6]),
        (Exponential(), 8, [1, 2, 4, 6, 7]),
        (Exponential(), 10, [1, 2, 4, 6, 8, 9]),
    ],
)
def test_client_0_has_the_neighbours_that_one_finds_on_paper(graph, clients, neighbours):
    links = graph.links(clients, ANY)
    assert np.flatnonzero(links[0]).tolist() == neighbours
    assert (links == links.T).all()
    assert not links.diagonal().any()
    # these graphs look the same from every client, so every neighbour counts the same
    np.testing.assert_allclose(metropolis(links)[0, [0, *neighbours]], 1 / (1 + len(neighbours)))


@pytest.mark.parametrize("graph", [Complete(), Circle(), Torus(), Exponential(), RandomNeighbours(2), Edges(((0, 1),))])
def test_weights_are_symmetric_and_doubly_stochastic(graph):
    clients = 2 if isinstance(graph, Edges) else 12
    found = Mixing(graph).matrix(3, [1.0] * clients)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(found.sum(axis=0), 1, atol=1e-12)
    assert (found >= 0).all()


@pytest.mark.parametrize("graph", [Circle(), Torus(), Exponential(), RandomNeighbours(3)])
def test_mixing_keeps_the_mean_and_brings_models_nearer(graph):
    models = torch.randn(12, 40, generator=torch.Generator().manual_seed(1))
    found = mix(Mixing(graph, steps=2), models)
    torch.testing.assert_close(found.mean(0), models.mean(0), atol=1e-6, rtol=1e-5)
    assert found.std(0).max() < models.std(0).max()


def test_several_steps_are_one_step_several_times():
    models = torch.randn(6, 10, generator=torch.Generator().manual_seed(2))
    once = models
    for _ in range(4):
        once = mix(Mixing(Circle()), once)
    torch.testing.assert_close(mix(Mixing(Circle(), steps=4), models), once, atol=1e-6, rtol=1e-5)


def test_among_all_everybody_gets_the_plain_mean_and_it_is_kept_once():
    models = torch.randn(4, 5, generator=torch.Generator().manual_seed(3))
    mixing = Mixing()
    after = mixing(state_of(models, mixing), outcomes_of(models, [1, 2, 3, 4]))
    torch.testing.assert_close(after.batons[3].params, models.mean(0))
    assert len({baton.params.data_ptr() for baton in after.batons}) == 1


def test_by_sizes_everybody_takes_the_mean_by_examples_of_those_it_hears():
    models = torch.tensor([[0.0, 6.0], [6.0, 0.0], [12.0, 6.0]])
    found = mix(Mixing(Edges(((0, 1), (1, 2))), weights="sizes"), models, [1, 2, 3])
    # (0·1 + 6·2) / 3, (0·1 + 6·2 + 12·3) / 6, (6·2 + 12·3) / 5
    np.testing.assert_allclose(found, [[4.0, 2.0], [8.0, 4.0], [9.6, 3.6]], rtol=1e-6)


def test_who_was_lost_takes_part_with_the_model_it_had():
    before, trained = torch.tensor([[3.0, 0.0]] * 3), torch.tensor([[0.0, 0.0], [9.0, 9.0], [6.0, 3.0]])
    mixing = Mixing()
    after = mixing(state_of(before, mixing), outcomes_of(trained, [1, 1, 1], lost=(1,)))
    np.testing.assert_allclose(after.batons[0].params, [3.0, 1.0], rtol=1e-6)


def test_in_a_random_graph_everybody_draws_so_many_others_anew_every_round():
    graph = RandomNeighbours(3)
    links = Mixing(graph, weights="sizes").links(10, 1)
    assert links.sum(axis=1).tolist() == [3] * 10
    assert not links.diagonal().any()
    assert (links == Mixing(graph, weights="sizes").links(10, 1)).all()
    assert (links != Mixing(graph, weights="sizes").links(10, 2)).any()
    assert (links != Mixing(graph, weights="sizes", seed=1).links(10, 1)).any()
    assert (Mixing(graph).links(10, 1) == links | links.T).all()
    assert RandomNeighbours(10).links(4, ANY).sum() == 12  # there are no more


def test_what_is_sent_is_a_message_to_every_neighbour_in_every_step():
    models = torch.zeros(12, 2)
    for graph, degree in ((Complete(), 11), (Circle(), 2), (Torus(), 4), (Exponential(), 6)):  # 1, 2, 4, 8, 10, 11
        mixing = Mixing(graph, steps=3)
        steps = mixing.exchanges(state_of(models, mixing))
        assert [sum(map(len, step)) for step in steps] == [12 * degree] * 3
        assert all(client not in heard for client, heard in enumerate(steps[0]))


@pytest.mark.parametrize(
    ("graph", "clients", "message"),
    [
        (Complete(), 1, "one client has nobody to mix its model with"),
        (Edges(((0, 1), (2, 3))), 4, "not connected: no path leads from client 0 to 2, 3"),
        (Edges(((0, 1),)), 3, "not connected: no path leads from client 0 to 2"),
        (Edges(((0, 1), (1, 5))), 3, r"the edge \[1, 5\] is of other clients than there are: 3 clients are numbered 0"),
        (Edges(((-1, 1),)), 3, "other clients than there are"),
        (Torus(), 7, "7 clients do not fit: take ring, or exponential"),
        (Torus(rows=3), 8, "3 rows of at least 2 clients, and 8 clients do not fit"),
        (Matrix(((0.5, 0.5), (0.5, 0.5))), 3, "the mixing matrix is of 2 clients, and there are 3"),
        (Matrix(((1.0, 0.0), (0.0, 1.0))), 2, "not connected"),
        (Matrix(((0.0, 1.0), (1.0, 0.0))), 2, "swap models for ever"),
    ],
)
def test_a_graph_on_which_clients_cannot_agree_is_refused(graph, clients, message):
    with pytest.raises(BadInput, match=message):
        Mixing(graph).init(torch.zeros(2), clients)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Matrix(((0.5, 0.5), (0.4, 0.6))), r"not symmetric: \[0\]\[1\] is 0.5, \[1\]\[0\] is 0.4"),
        (lambda: Matrix(((0.5, 0.4), (0.4, 0.6))), "every row of a mixing matrix sums to 1, row 0 to 0.9"),
        (lambda: Matrix(((1.5, -0.5), (-0.5, 1.5))), "negative or not finite"),
        (lambda: Matrix(((0.5, 0.5), (1.0,))), "row 1 has 1 of 2 numbers"),
        (lambda: Matrix(()), "it is empty"),
        (lambda: Edges(((0, 0),)), r"a pair of two different clients, such as \[0, 1\], not \[0, 0\]"),
        (lambda: Edges(((0, 1, 2),)), "a pair of two different clients"),
        (lambda: Torus(rows=1), "rows must be at least 2"),
        (lambda: RandomNeighbours(0), "neighbours must be at least 1"),
        (lambda: Mixing(steps=0), "mixing_steps must be at least 1"),
        (lambda: Mixing(weights="equal"), "weights must be metropolis or sizes"),
    ],
)
def test_a_graph_that_is_none_is_refused_with_the_reason(make, message):
    with pytest.raises(BadInput, match=message):
        make()


def test_a_given_matrix_is_taken_as_it_is():
    rows = ((0.7, 0.3, 0.0), (0.3, 0.2, 0.5), (0.0, 0.5, 0.5))
    models = torch.tensor([[10.0], [0.0], [20.0]])
    np.testing.assert_allclose(mix(Mixing(Matrix(rows)), models), [[7.0], [13.0], [10.0]], rtol=1e-6)


def test_every_graph_of_the_table_has_a_sentence_of_its_own():
    assert len({graph.__doc__ for graph in GRAPHS.values()}) == len(GRAPHS)
