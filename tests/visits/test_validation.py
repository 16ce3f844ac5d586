"""The part that a client does not train on, and the epoch that is best on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, config, train
from fedrelay.algorithms import scaffold
from fedrelay.data import Iid, Natural, digits
from fedrelay.data.federation import Examples, Source
from fedrelay.data.synthetic import quadratic_of
from fedrelay.engines import Inline, Stacked
from fedrelay.merges import WithAbsent
from fedrelay.models import Mlp, Own, Quadratic
from fedrelay.tasks import Workspaces
from fedrelay.types import Baton, Visit
from fedrelay.visits import Effect, Term, training
from fedrelay.visits.validation import split

SHARE = 0.25
NOISY = {"epochs": 8, "batch": 8, "lr": 0.9}  # so long steps that the best epoch is not the last one


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation.split(digits(), Iid(), 10)


@pytest.fixture(scope="module")
def task(federation) -> Task:
    return Task.of(Mlp(hidden=(12,)), federation)


def visit_of(federation, task, *, client=3, round=1, hop=0, seed=7) -> Visit:
    return Visit(federation.client(client), task, {}, {}, round, hop, seed, Workspaces(task))


@dataclass(frozen=True)
class Told(Term):
    """Sends how many steps it is told of, and which rows it sees."""

    def begin(self, received, visit, /):
        assert len(visit.client.rows) < 144
        return Effect()

    def end(self, received, trained, visit, /, *, steps, lr):
        return visit.memory, {"steps": steps, "rows": visit.client.rows}


def accuracies(federation, task, visit, local) -> tuple[list[torch.Tensor], list[float]]:
    """The model at the end of every epoch, and how many of the held-out examples an ordinary network gets right."""
    _, rows = split(visit, SHARE)
    x, y = federation.source.train.take(rows)
    models, right = [], []
    for _ in local.train(Baton(task.init(5)), visit):
        models.append(visit.workspaces.main.params.clone())
        network = task.model(task.shape, task.classes).eval()
        with torch.no_grad():
            for name, value in task.layout.pieces(models[-1]).items():
                network.get_parameter(name).copy_(value)
            right.append(float((network(x).argmax(-1) == y).float().mean()))
    return models, right


def test_the_kept_epoch_is_the_best_on_the_held_out_part_and_the_first_of_equals(federation, task):
    ties = 0
    chosen = set()
    for seed in range(6):
        visit = visit_of(federation, task, seed=seed)
        local = Sgd(**NOISY, validation=SHARE, terms=(Told(),))
        models, right = accuracies(federation, task, visit, local)
        best = right.index(max(right))  # the first of equals
        ties += right.count(max(right)) > 1
        chosen.add(best)
        baton, _, report = replace(local, keep="best")(Baton(task.init(5)), visit)
        assert torch.equal(baton.params, models[best])
        assert not any(torch.equal(baton.params, other) for number, other in enumerate(models) if number != best)
        assert report.uplink["steps"] == (best + 1) * 14  # 108 examples in batches of 8
        last, _, _ = local(Baton(task.init(5)), visit)
        assert torch.equal(last.params, models[-1])
    assert ties
    assert len(chosen) > 1
    assert min(chosen) < NOISY["epochs"] - 1


def test_when_nothing_changes_the_first_epoch_is_kept(federation, task):
    local = Sgd(epochs=4, batch=8, lr=0.0, keep="best", validation=SHARE, terms=(Told(),))
    _, _, report = local(Baton(task.init(5)), visit_of(federation, task))
    assert report.uplink["steps"] == 14
    assert report.examples == 4 * 108  # all that were worked on
    _, _, report = replace(local, keep="last")(Baton(task.init(5)), visit_of(federation, task))
    assert report.uplink["steps"] == 4 * 14


@pytest.mark.parametrize(("lr", "best"), [(0.5, 4), (1.5, 4), (2.5, 1)])
def test_where_a_loss_is_the_headline_the_smallest_one_is_best(lr, best):
    """Steps on a parabola multiply the distance from its centre by 1 - lr each: the last epoch is nearest, or the first
    where that is beyond -1."""
    federation = Federation.of(source := quadratic_of([[[1.0]]], [[3.0]], [10]), [source.train.labels * 0 + range(10)])
    task = Task.of(Quadratic(), federation)
    local = Sgd(epochs=4, batch=0, lr=lr, keep="best", validation=0.2)
    baton, _, _ = local(Baton(torch.tensor([5.0])), visit_of(federation, task, client=0))
    assert baton.params.item() == pytest.approx(3 + 2 * (1 - lr) ** best, rel=1e-5)


def test_looking_at_the_epochs_does_not_disturb_the_training(federation):
    """Dropout draws and running statistics go on as they would without."""
    layers = (nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 10))
    task = Task.of(Own(nn.Sequential(*layers)), federation)
    local = Sgd(epochs=5, batch=20, lr=0.3, validation=SHARE, terms=(Told(),))
    kept, _, report = replace(local, keep="best")(Baton(task.init(5)), visit_of(federation, task))
    epochs = report.uplink["steps"] / 6  # 108 examples in batches of 20
    assert epochs in (2, 3, 4, 5)  # something came before it
    shorter, _, _ = replace(local, epochs=int(epochs))(Baton(task.init(5)), visit_of(federation, task))
    assert torch.equal(kept.params, shorter.params)


# --- the split


@pytest.mark.parametrize(
    ("size", "share", "held"),
    [(100, 0.1, 10), (100, 0.25, 25), (7, 0.2, 1), (3, 0.01, 1), (10, 0.9, 9), (2, 0.9, 1), (2, 0.1, 1), (1, 0.5, 0)],
)
def test_at_least_one_example_is_held_out_and_one_is_left(federation, task, size, share, held):
    visit = visit_of(federation, task)
    visit = replace(visit, client=replace(visit.client, rows=visit.client.rows[:size]))
    client, rows = split(visit, share)
    assert len(rows) == held
    assert client.id == 3
    assert sorted([*client.rows.tolist(), *rows.tolist()]) == sorted(visit.client.rows.tolist())
    for keep in ("last", "best"):
        baton, _, report = Sgd(keep=keep, validation=share)(Baton(task.init(5)), visit)
        assert baton.weight == report.examples == size - held


def test_the_split_is_the_same_at_every_visit_and_another_for_every_seed(federation, task):
    found = [
        split(visit_of(federation, task, **at), SHARE)[1].tolist()
        for at in ({}, {"round": 9}, {"hop": 4}, {"round": 2, "hop": 1})
    ]
    assert found[1:] == found[:1] * 3
    assert split(visit_of(federation, task, seed=8), SHARE)[1].tolist() != found[0]
    positions = [
        torch.isin(federation.client(client).rows, split(visit_of(federation, task, client=client), SHARE)[1])
        for client in (3, 4)
    ]
    assert not torch.equal(*positions)


def spoiled_where_held_out(federation, task) -> Federation:
    """Every held-out example of client 3 is not a number: whoever learns from one has a model that is none either."""
    train = federation.source.train
    x = train.x.clone()
    x[split(visit_of(federation, task), SHARE)[1]] = float("nan")
    return replace(federation, source=replace(federation.source, train=Examples(x, train.y)))


def test_nothing_is_learned_from_the_held_out_part(federation, task):
    spoiled = spoiled_where_held_out(federation, task)
    for keep in ("last", "best"):
        local = Sgd(epochs=3, batch=8, keep=keep, validation=SHARE)
        baton, _, report = local(Baton(task.init(5)), visit_of(spoiled, task))
        assert torch.isfinite(baton.params).all()
        assert baton.weight == 108
        assert report.metrics["loss"] > 0
    (together, *_), _ = Sgd(batch=8, validation=SHARE).together(
        [Baton(task.init(5))] * 2, [visit_of(spoiled, task), visit_of(spoiled, task)]
    )
    assert torch.isfinite(together.params).all()
    assert not torch.isfinite(Sgd(batch=8)(Baton(task.init(5)), visit_of(spoiled, task))[0].params).all()


def test_terms_do_not_see_the_held_out_part_either(federation, task):
    """SCAFFOLD of option I takes the gradient of all that it sees."""
    visit = visit_of(spoiled_where_held_out(federation, task), task)
    visit = replace(visit, shared={"control": torch.zeros(task.layout.size)})
    local = Sgd(batch=8, validation=SHARE, terms=(*scaffold(option="I").terms, Told()))
    _, memory, report = local(Baton(task.init(5)), visit)
    assert torch.isfinite(memory["control"]).all()
    assert memory["control"].abs().sum() > 0
    assert report.uplink["rows"].tolist() == split(visit, SHARE)[0].rows.tolist()


def test_a_validation_part_stacks_if_the_last_epoch_is_kept(federation, task):
    local = Sgd(batch=8, epochs=2, lr=0.1, validation=SHARE)
    assert local.stacks(task)
    assert not replace(local, keep="best").stacks(task)
    algorithm = fr.method(local=local, fraction=0.5)
    expected, found = (
        [state.batons[0].params for state in train(algorithm, engine, rounds=2)]
        for engine in (Inline(federation, task), Stacked(federation, task, rows=5))
    )
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


# --- the loop


@pytest.mark.parametrize(
    ("settings", "steps", "examples"),
    [
        ({"epochs": 3, "batch": 40}, [4, 8, 12], [144, 288, 432]),
        ({"steps": 6, "batch": 40}, [4, 6], [144, 224]),
        ({"steps": 2, "batch": 0}, [1, 2], [144, 288]),
        ({"epochs": 2, "batch": 40, "validation": SHARE}, [3, 6], [108, 216]),
    ],
)
def test_the_loop_stops_at_the_end_of_every_epoch_where_the_model_can_be_seen(
    federation, task, settings, steps, examples
):
    visit, local = visit_of(federation, task), Sgd(**settings)
    ends, models = [], []
    for epoch in local.train(Baton(task.init(5)), visit):
        ends.append(epoch)
        models.append(visit.workspaces.main.params.clone())
    assert [epoch.number for epoch in ends] == list(range(1, len(steps) + 1))
    assert [epoch.steps for epoch in ends] == steps
    assert [epoch.examples for epoch in ends] == examples
    for taken, epoch, model in zip(steps, ends, models, strict=True):
        shorter, _, report = replace(local, steps=taken)(Baton(task.init(5)), visit)
        assert torch.equal(shorter.params, model)
        assert epoch.losses / epoch.examples == pytest.approx(report.metrics["loss"], rel=1e-6)


def test_without_a_validation_part_nothing_is_split_or_evaluated_and_the_steps_are_plain(federation, task, monkeypatch):
    monkeypatch.setattr(training, "split", lambda *_: pytest.fail("it was split"))
    monkeypatch.setattr(training, "better", lambda *_: pytest.fail("it was evaluated"))
    local, visit = Sgd(epochs=2, batch=8, lr=0.3, keep="last", validation=0.0), visit_of(federation, task)
    found, _, _ = local(Baton(task.init(5)), visit)
    workspace = Workspaces(task).main
    workspace.load(task.init(5), training=True)
    for positions in Sgd(epochs=2, batch=8).row(visit).positions():
        workspace.step(*visit.client.take(positions, None), 0.3)
    assert torch.equal(found.params, workspace.params)


# --- refusals and configuration

TABLES = {
    "rounds": 2,
    "data": {"name": "digits", "clients": 5},
    "model": {"name": "mlp", "hidden": [8]},
    "algorithm": {"name": "fedavg", "fraction": 0.5},
    "engine": {"name": "inline"},
}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep": "best"}, 'keep = "best" needs a part to find the best epoch on: validation = 0.1 holds a tenth out'),
        ({"keep": "best", "validation": 0.0}, 'keep = "best" needs a part'),
        ({"keep": "first"}, "expected one of last, best"),
        ({"validation": 1.0}, "validation must be at least 0 and at most 0.9, not 1"),
        ({"validation": -0.1}, "validation must be at least 0 and at most 0.9, not -0.1"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(settings, message):
    with pytest.raises(BadInput, match=rf"\[local\].*{message}"):
        config.build({**TABLES, "local": settings})


def test_what_is_kept_must_have_a_name_that_is_known():
    with pytest.raises(BadInput, match="keep must be last or best, not 'first'"):
        Sgd(keep="first", validation=0.1)


def test_the_configuration_states_the_split(tmp_path):
    plain = config.build(TABLES).tables["local"]
    assert (plain["keep"], plain["validation"]) == ("last", 0.0)
    built = config.build({**TABLES, "local": {"optimiser": "adam", "epochs": 2, "keep": "best", "validation": 0.2}})
    assert (built.tables["local"]["keep"], built.tables["local"]["validation"]) == ("best", 0.2)
    assert (built.algorithm.update.keep, built.algorithm.update.validation) == ("best", 0.2)
    list(built.record(tmp_path / "run").run())
    written = config.read(tmp_path / "run" / "config.toml")["local"]
    assert (written["keep"], written["validation"]) == ("best", 0.2)


def test_clients_of_one_example_have_nothing_to_hold_out(task):
    examples = Examples(torch.zeros(2, 8, 8, 1), torch.tensor([1, 2]))
    source = Source("two", train=examples, test=examples, classes=10)
    federation = Federation.split(source, Iid(), 2)
    baton, _, report = Sgd(keep="best", validation=0.5)(Baton(task.init(5)), visit_of(federation, task, client=1))
    assert baton.weight == report.examples == 1


@pytest.mark.parametrize("size", [1, 2, 20])
def test_what_counts_is_what_a_visit_weighs_also_where_parts_stay_at_home(task, size):
    examples = Examples(torch.zeros(size, 8, 8, 1), torch.zeros(size, dtype=torch.int64))
    federation = Federation.split(Source("alike", train=examples, test=examples, classes=10), Iid(), 1)
    for local in (Sgd(steps=1), Sgd(steps=1, validation=SHARE), Sgd(steps=1, keep="best", validation=0.9)):
        for work in (local, fr.method(local=local, private="head").update):
            baton, _, _ = work(Baton(task.init(5)), visit_of(federation, task, client=0))
            assert work.counted(size) == baton.weight


def test_when_everybody_is_there_nobody_is_absent_whatever_is_held_out():
    """Two clients that go all the way to their optima, 1 and -3, and count alike."""
    source = quadratic_of([[[1.0]], [[1.0]]], [[1.0], [-3.0]], [20, 20])
    federation = Federation.split(source, Natural())
    engine = Inline(federation, Task.of(Quadratic(), federation))
    local = Sgd(steps=1, batch=0, lr=1.0, validation=0.5)
    (after,) = train(fr.method(local=local, fraction=1.0, merge=WithAbsent()), engine, rounds=1)
    assert after.examples == 20
    assert fr.deployed(after).params.tolist() == pytest.approx([-1.0])
