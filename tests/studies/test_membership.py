"""Membership inference: scores by hand, halves of one kind, models that remember, and what noise allows."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import tomli_w
from sklearn.metrics import roc_auc_score

from fedrelay import BadInput, config
from fedrelay.cli.main import main
from fedrelay.data import Federation, Shards, digits
from fedrelay.runs.loop import train
from fedrelay.studies.membership import measure as measuring
from fedrelay.studies.membership.halves import held_out, victims_of
from fedrelay.studies.membership.measure import measure
from fedrelay.studies.membership.scores import advantage, auc, deviation_of_nothing, most_advantage, tpr_at
from fedrelay.studies.watched import watching
from fedrelay.visits.accounting import gaussian_delta

# Noise with labels that mean nothing: what is known of an example's label was remembered, there is nothing to learn.
NOTHING_TO_LEARN = {
    "rounds": 2,
    "data": {
        "name": "synthetic",
        "clients": 12,
        "examples": 480,
        "shape": [40],
        "separation": 0.0,
        "partition": {"name": "iid"},
    },
    "model": {"name": "mlp", "hidden": [64]},
    "local": {"epochs": 20, "batch": 4, "lr": 0.1},
    "algorithm": {"name": "fedseq", "groups": 3, "grouper": "random", "fraction": 1.0},
    "engine": {"name": "inline"},
}


def tables(**algorithm):
    return {**NOTHING_TO_LEARN, "algorithm": {**NOTHING_TO_LEARN["algorithm"], **algorithm}}


def test_auc_advantage_and_rates_of_hand_made_scores():
    members, others = np.array([3.0, 2.0, 2.0, 0.5]), np.array([2.0, 1.0, 0.0])
    # Pairs won: 3 + (0.5 + 2) + (0.5 + 2) + 1 of 12.
    assert auc(members, others) == pytest.approx(9 / 12)
    # Above 2: 3 of 4 members, 1 of 3 others. Above 3: one member, nobody else.
    assert advantage(members, others) == pytest.approx(3 / 4 - 1 / 3)
    assert tpr_at(members, others, 0.0) == pytest.approx(1 / 4)
    assert tpr_at(members, others, 0.4) == pytest.approx(3 / 4)
    draw = np.random.default_rng(0)
    members, others = draw.normal(0.3, 1, 300).round(1), draw.normal(0, 1, 200).round(1)
    expected = roc_auc_score([1] * 300 + [0] * 200, np.concatenate([members, others]))
    assert auc(members, others) == pytest.approx(expected, abs=1e-12)


def test_the_deviation_of_an_auc_of_nothing_is_what_chance_makes():
    draw = np.random.default_rng(1)
    found = [auc(draw.random(12), draw.random(9)) for _ in range(2000)]
    assert np.std(found) == pytest.approx(deviation_of_nothing(12, 9), rel=0.06)


def test_the_most_advantage_is_where_the_lines_of_differential_privacy_cross():
    assert most_advantage(0.0, 0.0) == 0.0
    assert most_advantage(math.log(3), 0.0) == pytest.approx(0.5)
    assert most_advantage(0.0, 0.3) == pytest.approx(0.3)
    assert most_advantage(math.inf, 0.0) == 1.0
    # Of a Gaussian shift mu the advantage is 2 Φ(mu / 2) - 1: no (epsilon, delta) of it says less.
    for mu in (0.2, 1.0, 3.0):
        bounds = [most_advantage(epsilon, gaussian_delta(epsilon, mu)) for epsilon in np.linspace(0, 8, 30)]
        exact = math.erf(mu / math.sqrt(8))
        assert all(bound >= exact - 1e-12 for bound in bounds)
        assert bounds[0] == pytest.approx(exact)


def test_halves_have_the_same_classes_and_nobody_trains_on_the_second():
    federation = Federation.split(digits(), Shards(), clients=30, seed=3)
    left, halves = held_out(federation, [4, 7], seed=0)
    for client, mine in halves.items():
        counts = [np.bincount(part.labels, minlength=10) for part in (mine.members, mine.others)]
        assert counts[0].tolist() == counts[1].tolist()
        whole = set(federation.client(client).rows.tolist())
        trained = set(left.client(client).rows.tolist())
        assert trained < whole
        assert len(trained) - len(mine.members) <= 2  # the odd ones of both classes
        assert len(mine.others) == len(whole - trained)
        assert not set(left.order.tolist()) & (whole - trained)
    assert left.client(5).rows.tolist() == federation.client(5).rows.tolist()


def test_watching_changes_no_bit():
    plain, watched = (config.build(tables()) for _ in range(2))
    algorithm = watching(watched.algorithm, [0, 5], who="a test is")
    *_, one = train(plain.algorithm, plain.engine, rounds=2)
    *_, other = train(algorithm, watched.engine, rounds=2)
    assert one.batons[0].params.equal(other.batons[0].params)


def test_what_was_remembered_is_found_where_it_is_and_noise_hides_it():
    parallel = {**NOTHING_TO_LEARN, "algorithm": {"name": "fedavg", "fraction": 1.0}}
    found = {"fedavg": measure(parallel), "fedseq": measure(tables())}
    for one in found.values():
        assert one.visits == 20
        control = one.of("control")
        assert abs(control.auc - 0.5) < 4 * deviation_of_nothing(20, 20) / math.sqrt(10)
        assert one.of("next").auc > 0.95
        assert one.of("around").auc > 0.85
        # The final model has seen others since, or is a mean: it tells less than what was handed on.
        assert 0.5 < one.of("final").auc < one.of("next").auc
    noisy = measure(tables(privacy={"clip": 1.0, "noise": 4.0}))
    most = noisy.of("next").most
    assert most == pytest.approx(math.erf(2 * math.sqrt(2) / 4 / math.sqrt(8)))  # two visits, other examples: 2 √2 / 4
    assert found["fedseq"].of("next").advantage > 0.8 > most
    for leak in noisy.leaks[1:]:
        assert leak.advantage <= most + 2 / math.sqrt(leak.scores)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"named": [12]}, "there is no client 12"),
        ({}, {"victims": 13}, "victims, of 12 clients with at least 5 pairs"),
        ({"data": {**NOTHING_TO_LEARN["data"], "examples": 96}}, {"named": [3]}, "client 3 has [0-4] pairs"),
        ({"data": {**NOTHING_TO_LEARN["data"], "examples": 96}}, {}, "no client has 5 pairs"),
        ({"algorithm": {"name": "centralized"}}, {}, "the centralised reference has none"),
        ({"algorithm": {"name": "fedper"}}, {}, "stay at home"),
        ({"rounds": 1, "algorithm": {"name": "fedavg", "fraction": 0.1}}, {"named": [0]}, "was visited"),
    ],
)
def test_what_cannot_be_asked_is_refused(changes, options, message):
    with pytest.raises(BadInput, match=message):
        measure({**NOTHING_TO_LEARN, **changes}, **options)


def test_victims_are_drawn_from_the_seed():
    federation = Federation.split(digits(), Shards(), clients=30, seed=3)
    one, same, other = (victims_of(federation, named=None, count=None, seed=seed) for seed in (1, 1, 2))
    assert one == same != other
    assert len(one) == 10


def test_the_command_keeps_what_is_done_and_goes_on(tmp_path, monkeypatch, capsys):
    file, page = tmp_path / "two.toml", tmp_path / "out" / "leaks.html"
    quick = {**NOTHING_TO_LEARN, "rounds": 1, "local": {"lr": 0.1}}
    text = tomli_w.dumps(quick) + '\n[runs.one]\n[runs."two <b>".algorithm]\nname = "fedavg"\n'
    file.write_text(text)
    command = ["membership", str(file), "--victims", "2", "--out", str(page)]
    done, real = [], measuring.measure

    def once(*args, **options):
        if done:
            raise KeyboardInterrupt
        done.append(real(*args, **options))
        return done[0]

    monkeypatch.setattr(measuring, "measure", once)
    assert main(command) == 130
    assert not page.exists()
    monkeypatch.setattr(measuring, "measure", lambda *args, **options: done.append(1) or real(*args, **options))
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    assert len(done) == 2  # the first run was not done again
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["one", "two <b>"]
    assert json.loads(page.with_suffix(".json").read_text())["membership"]["one"]["found"] == found["one"]
    assert "two &lt;b&gt;" in page.read_text()
    assert "two <b>" not in page.read_text()
    page.unlink()
    page.with_suffix(".json").write_text("{}")
    assert main(command) == 2
    assert "nothing was overwritten" in " ".join(capsys.readouterr().err.split())
