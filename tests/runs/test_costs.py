"""Messages per round against Table 3 of the FedSeq journal paper."""

from __future__ import annotations

import pytest
import torch

import fedrelay as fr
from fedrelay import Federation, Sgd, Task, advance, start
from fedrelay.algorithms import fedadam, fedavg, fedcyclic, feddyn, fedprox, fedseq, scaffold
from fedrelay.data import Dirichlet, Natural, digits, quadratic
from fedrelay.engines import Inline
from fedrelay.models import Mlp, Quadratic
from fedrelay.plans.sampling import SAMPLERS
from fedrelay.runs.costs import depth, describing, traffic
from fedrelay.runs.latency import Given, Latency
from fedrelay.types import Baton, Chain, Drop, Outcome, Report
from fedrelay.visits.probe_networks import OwnFeatures, SameModel
from fedrelay.visits.traits import ClassHistogram, ClassifierWeights, Task2Vec

LOCAL = Sgd(steps=1, batch=0)
K = 500


@pytest.fixture(scope="module")
def engine() -> Inline:
    federation = Federation.split(quadratic(clients=K, dimension=2, examples=1), Natural())
    return Inline(federation, Task.of(Quadratic(), federation))


def one_round(algorithm, engine) -> tuple[dict, dict]:
    state = start(algorithm, engine)
    return state.memo, advance(algorithm, engine, state).log


def test_fedavg_sends_ck_down_and_ck_up(engine):
    _, log = one_round(fr.method(fedavg(), local=LOCAL, fraction=0.2), engine)
    assert log.messages == {"server_to_client": 100, "client_to_server": 100, "client_to_client": 0}
    assert log.depth == 1


def test_scaffold_sends_twice_as_much_as_fedavg(engine):
    _, log = one_round(fr.method(scaffold(), local=LOCAL, fraction=0.2), engine)
    assert log.messages == {"server_to_client": 200, "client_to_server": 200, "client_to_client": 0}  # 4CK = 400
    _, plain = one_round(fr.method(fedavg(), local=LOCAL, fraction=0.2), engine)
    assert log.bytes == {direction: 2 * count for direction, count in plain.bytes.items()}


@pytest.mark.parametrize("recipe", [fedprox, feddyn, fedadam])
def test_fedprox_feddyn_and_server_optimisers_send_what_fedavg_sends(engine, recipe):
    _, log = one_round(fr.method(recipe(), local=LOCAL, fraction=0.2), engine)
    _, plain = one_round(fr.method(fedavg(), local=LOCAL, fraction=0.2), engine)
    assert log.messages == plain.messages == {"server_to_client": 100, "client_to_server": 100, "client_to_client": 0}
    assert log.bytes == plain.bytes


def test_along_chains_every_client_of_scaffold_gets_and_sends_a_control_variate(engine):
    _, log = one_round(fr.method(fedseq(max_clients=10), scaffold(), local=LOCAL), engine)
    # 10 chains of 10: batons 10 down, 10 up, 90 across; control variates 100 down, 100 up
    assert log.messages == {"server_to_client": 110, "client_to_server": 110, "client_to_client": 90}


def test_fedcyclic_sends_ck_plus_one_in_all(engine):
    _, log = one_round(fr.method(fedcyclic(), local=LOCAL, fraction=0.2), engine)
    assert log.messages == {"server_to_client": 1, "client_to_server": 1, "client_to_client": 99}
    assert log.depth == 100


def test_fedseq_with_equal_groups_sends_c_times_groups_plus_clients(engine):
    memo, log = one_round(fr.method(fedseq(max_clients=10), local=LOCAL, fraction=0.2), engine)
    assert len(memo["groups"]) == 50
    assert log.messages == {"server_to_client": 10, "client_to_server": 10, "client_to_client": 90}
    assert sum(log.messages.values()) == 0.2 * (50 + K)
    assert log.bytes["client_to_client"] == 90 * 2 * 4  # a model of two float32 numbers


def test_fedseq_with_unequal_groups_sends_groups_plus_their_clients(engine):
    memo, log = one_round(fr.method(fedseq(min_examples=8, max_clients=11), local=LOCAL, fraction=0.2), engine)
    sizes = sorted(len(group) for group in memo["groups"])
    assert sizes == [8] * 58 + [9] * 4  # as in the authors' setting: 62 groups, 12 a round
    assert log.chains == 12
    assert log.messages["server_to_client"] == log.messages["client_to_server"] == 12
    assert sum(log.messages.values()) == 12 + log.clients


def outcome(clients: tuple[int, ...], lost: tuple[int, ...]) -> Outcome:
    start = Baton(torch.zeros(3))
    good = tuple(Report(client, 1) for hop, client in enumerate(clients) if hop not in lost)
    return Outcome(Chain(start, clients), start, good, tuple(Drop(clients[hop], hop, "") for hop in lost))


@pytest.mark.parametrize(
    ("lost", "messages"),
    [
        ((), (1, 1, 3)),
        ((1,), (1, 1, 3)),  # the first client sends to the second in vain, then to the third
        ((0,), (2, 1, 2)),  # the server sends again, to the second client
        ((0, 1), (3, 1, 1)),
        ((3,), (1, 1, 3)),
        ((0, 1, 2, 3), (4, 0, 0)),
    ],
)
def test_a_dropped_client_costs_the_message_that_reached_it(lost, messages):
    found = traffic([outcome((5, 6, 7, 8), lost)], torch.zeros(3), {})
    assert found.messages == messages
    assert found.bytes == tuple(12 * m for m in messages)


def test_a_client_that_starts_a_lap_after_ending_one_sends_nothing_to_itself():
    assert traffic([outcome((5, 6, 6, 5), ())], torch.zeros(3), {}).messages == (1, 1, 2)


def test_depth_is_the_longest_chain():
    assert depth([outcome((1, 2, 3), ()), outcome((4,), ())]) == 3


def test_what_travels_besides_the_baton_is_counted_in_bytes():
    one = outcome((5, 6), ())
    told = Report(5, 1, uplink={"change": torch.zeros(4), "count": 3})
    one = Outcome(one.chain, one.baton, (told, one.reports[1]))
    found = traffic([one], torch.zeros(3), {"control": torch.zeros(5)})
    assert found.bytes == (12 + 2 * 20, 12 + 16 + 8, 12)


MODEL = (64 * 8 + 8 + 8 * 10 + 10) * 4


@pytest.fixture(scope="module")
def twenty() -> Inline:
    federation = Federation.split(digits(), Dirichlet(alpha=0.0), 20)
    return Inline(federation, Task.of(Mlp(hidden=(8,)), federation))


@pytest.mark.parametrize(
    ("trait", "down", "up"),
    [
        (ClassHistogram(), 0, 10 * 4),  # a number per class; nobody needs a model for that
        (ClassifierWeights("last", epochs=1), MODEL, 8 * 10 * 4),
        (Task2Vec(SameModel(), samples=64, epochs=1, draws=1), MODEL, 8 * 4),
        (Task2Vec(OwnFeatures(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 5))), draws=1), 0, 5 * 4),
    ],
)
def test_what_is_sent_to_describe_clients_counts_in_the_first_round_and_is_told_apart(twenty, trait, down, up):
    algorithm = fr.method(fedseq(groups=4, traits=trait), local=LOCAL, fraction=0.5)
    first = advance(algorithm, twenty, start(algorithm, twenty))
    second = advance(algorithm, twenty, first)
    asked = 20 if down else 0
    assert first.log.describing == {"messages": 20 + asked, "bytes": 20 * (down + up)}
    assert second.log.describing == {"messages": 0, "bytes": 0}
    more = {"server_to_client": asked, "client_to_server": 20, "client_to_client": 0}
    assert first.log.messages == {key: second.log.messages[key] + count for key, count in more.items()}
    more = {"server_to_client": 20 * down, "client_to_server": 20 * up, "client_to_client": 0}
    assert first.log.bytes == {key: second.log.bytes[key] + count for key, count in more.items()}


def test_random_groups_describe_nobody_and_a_sampler_that_asks_for_classes_counts_too(twenty):
    _, log = one_round(fr.method(fedseq(groups=4), local=LOCAL), twenty)
    assert log.describing == {"messages": 0, "bytes": 0}
    _, log = one_round(fr.method(fedavg(), local=LOCAL, sampler=SAMPLERS["target"]()), twenty)
    assert log.describing == {"messages": 20, "bytes": 20 * 10 * 8}  # whole numbers of eight bytes


def test_a_client_that_fails_while_being_described_costs_the_model_that_reached_it():
    baton = Baton(torch.zeros(100))
    lost = Outcome(Chain(baton, (3,)), baton, (), (Drop(3, 0, "gone"),))
    sent = describing(lost, ClassifierWeights(), baton.params)
    assert (sent.messages, sent.bytes, sent.describing) == ((1, 0, 0), (400, 0, 0), (1, 400))


def test_the_virtual_clock_starts_with_the_describing_which_all_clients_do_at_the_same_time(twenty):
    trait = ClassifierWeights("last", epochs=2)
    speeds = tuple(float(10 + client) for client in range(20))
    latency = Latency(Given(speeds), Given((0.008,) * 20))  # 1000 bytes a second
    algorithm = fr.method(fedseq(groups=4, traits=trait), local=LOCAL, fraction=0.5)
    state = start(algorithm, twenty, latency)
    slowest = max(2 * size / speed for size, speed in zip(twenty.sizes, speeds, strict=True))
    assert state.clock == pytest.approx(MODEL / 1000 + slowest + 8 * 10 * 4 / 1000)
    after = advance(algorithm, twenty, state, latency)
    assert after.log.simulated_seconds == pytest.approx(after.clock)
    then = advance(algorithm, twenty, after, latency)
    assert then.log.simulated_seconds == pytest.approx(then.clock - after.clock)
