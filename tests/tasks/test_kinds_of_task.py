"""Whole runs of every kind of task, and what does not fit, refused when the task is made."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression, QuantileRegressor
from torch import nn

import fedrelay as fr
from fedrelay import BadInput, Task, seeds
from fedrelay.data.own import from_arrays
from fedrelay.engines import Inline, Pool, Stacked
from fedrelay.models import Logistic, Mlp, Own
from fedrelay.tasks import (
    F1,
    Accuracy,
    BinaryCrossEntropy,
    CrossEntropy,
    Huber,
    MeanSquaredError,
    OwnLoss,
    PixelCrossEntropy,
    Quantile,
    Workspaces,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 4))
WEIGHTS = np.array([2.0, -1.0, 0.5, 3.0])
NUMBERS = X @ WEIGHTS + 5 + RNG.normal(size=240)
LABELS = (X[:, :3] + 0.1 * RNG.normal(size=(240, 3)) > 0.3).astype(int)
CLASSES = (X @ WEIGHTS > 0).astype(int)


def clients(x, y, count: int = 4):
    """Unlike ones: sorted by the first number of a target."""
    order = np.argsort(y.reshape(len(y), -1)[:, 0], kind="stable")
    return [(x[rows], y[rows]) for rows in np.array_split(order, count)]


def federation(y, x=X, **settings):
    return from_arrays(clients(x, y), test=(x, y), **settings)


NUMERIC, MANY, TWO = federation(NUMBERS), federation(LABELS), federation(CLASSES)
ONE_STEP = fr.Sgd(lr=0.1, epochs=1, batch=1000)
"""Every client takes one step with all its examples: then a round is a step of gradient descent on everything."""


def trained(task, data, *, rounds=200, local=ONE_STEP, engine=Inline, **settings):
    with_engine = engine(data, task, **settings)
    try:
        *_, state = fr.train(fr.method(local=local, fraction=1.0), with_engine, rounds=rounds)
    finally:
        with_engine.close()
    (params,) = fr.deployed(state).vectors
    return params


def test_a_federated_linear_regression_is_scikit_learns_least_squares():
    task = Task.of(Logistic(), NUMERIC)
    assert task.loss == MeanSquaredError()
    assert (task.headline.name, task.headline.higher_is_better) == ("rmse", False)
    params = trained(task, NUMERIC)
    solution = LinearRegression().fit(X, NUMBERS)
    expected = [*solution.coef_, solution.intercept_]
    assert params.tolist() == pytest.approx(expected, abs=1e-4)
    found = fr.evaluate(params, NUMERIC.test, Workspaces(task))
    assert found["r2"] == pytest.approx(solution.score(X, NUMBERS), abs=1e-5)
    assert found["loss"] == pytest.approx(found["rmse"] ** 2, rel=1e-5)


def test_quantiles_cover_their_shares_as_scikit_learns_do():
    levels = (0.1, 0.5, 0.9)
    task = Task.of(Logistic(), NUMERIC, loss=Quantile(levels), metrics=["mae"])
    params = trained(task, NUMERIC, rounds=1500, local=replace(ONE_STEP, lr=0.2))
    predicted = (torch.from_numpy(X).float() @ params[:12].view(3, 4).T + params[12:]).numpy()
    for place, level in enumerate(levels):
        solution = QuantileRegressor(quantile=level, alpha=0).fit(X, NUMBERS)
        assert np.mean(predicted[:, place] >= NUMBERS) == pytest.approx(level, abs=0.03)
        assert np.abs(predicted[:, place] - solution.predict(X)).mean() < 0.15


def test_labels_are_learned_each_for_itself():
    task = Task.of(Logistic(), MANY)
    assert (task.loss, task.outputs, task.headline.name) == (BinaryCrossEntropy(), 3, "auroc")
    before = fr.evaluate(task.init(0), MANY.test, Workspaces(task))
    after = fr.evaluate(trained(task, MANY, local=replace(ONE_STEP, lr=1.0)), MANY.test, Workspaces(task))
    assert after["auroc"] > 0.98 > before["auroc"]
    assert after["f1"] > 0.9


def test_two_classes_are_learned_with_one_output():
    task = Task.of(Logistic(), TWO, loss="binary_cross_entropy", metrics=["accuracy", F1(), "auroc"])
    assert task.layout.size == 5  # four weights and a bias
    found = fr.evaluate(trained(task, TWO, local=replace(ONE_STEP, lr=1.0)), TWO.test, Workspaces(task))
    assert min(found["accuracy"], found["f1"], found["auroc"]) > 0.97


def blobs(count: int = 48, side: int = 8):
    """Noise with a bright square, and where it is."""
    rng = np.random.default_rng(1)
    mask = np.zeros((count, side, side), dtype=np.int64)
    for number, (row, column) in enumerate(rng.integers(0, side - 3, (count, 2))):
        mask[number, row : row + 3, column : column + 3] = 1 + number % 2
    x = (mask + 0.3 * rng.normal(size=mask.shape)).astype(np.float32)[..., None]
    return x, mask


PICTURES = from_arrays(clients(*blobs()), test=blobs())


@pytest.mark.parametrize("loss", [PixelCrossEntropy(), PixelCrossEntropy((0.2, 1.0, 1.0))])
def test_masks_are_learned_pixel_by_pixel(loss):
    with seeds.torch_seed(0, "masks"):
        net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 1))
    task = Task.of(Own(net), PICTURES, loss=loss)
    assert task.headline.name == "iou"
    before = fr.evaluate(task.init(0), PICTURES.test, Workspaces(task))
    local = fr.Sgd(lr=0.5, epochs=1, batch=12)
    after = fr.evaluate(trained(task, PICTURES, rounds=120, local=local), PICTURES.test, Workspaces(task))
    assert after["iou"] > 0.8 > before["iou"]


def test_a_mask_of_two_classes_may_have_one_output_per_pixel():
    x, mask = blobs()
    data = from_arrays(clients(x, (mask > 0).astype(int)), test=(x, (mask > 0).astype(int)))
    with seeds.torch_seed(0, "mask"):
        net = nn.Conv2d(1, 1, 3, padding=1)
    task = Task.of(Own(net), data, loss=BinaryCrossEntropy((3.0,)), metrics=["dice", "iou"])
    local = fr.Sgd(lr=0.5, epochs=2, batch=12)
    found = fr.evaluate(trained(task, data, rounds=10, local=local), data.test, Workspaces(task))
    assert found["dice"] == pytest.approx(2 * found["iou"] / (1 + found["iou"]))  # of one class, by definition
    assert found["dice"] > 0.9


def cox(output, target):
    """Partial likelihood of proportional hazards; targets are times and whether the event was seen."""
    order = target[:, 0].argsort(descending=True)
    risk, event = output.squeeze(-1)[order], target[order, 1]
    return -((risk - risk.logcumsumexp(0)) * event).sum() / event.sum().clamp(min=1)


def concordance(output, target):
    """How many pairs are in the right order: who has the event earlier has the higher risk."""
    risk, time, event = output.squeeze(-1), target[:, 0], target[:, 1]
    comparable = (time[:, None] < time) & (event[:, None] == 1)
    return (risk[:, None] > risk)[comparable].float().mean()


def test_survival_is_learned_by_a_loss_and_judged_by_a_metric_of_ones_own():
    time = np.exp(-X @ WEIGHTS / 2) * RNG.exponential(size=240)
    data = federation(np.stack([time, RNG.random(240) < 0.8], 1).astype(np.float32))
    task = Task.of(Logistic(), data, loss=OwnLoss(cox, outputs_needed=1), metrics=[concordance])
    assert task.headline.name == "concordance"
    before = fr.evaluate(task.init(0), data.test, Workspaces(task))["concordance"]
    after = fr.evaluate(trained(task, data, rounds=30, local=replace(ONE_STEP, lr=0.5)), data.test, Workspaces(task))
    assert after["concordance"] > 0.8 > before


TASKS = {
    "mse": (NUMERIC, None),
    "huber": (NUMERIC, Huber(0.5)),
    "labels": (MANY, None),
    "weights": (TWO, CrossEntropy((1.0, 3.0))),
    "mask": (PICTURES, None),
}


@pytest.mark.parametrize("name", TASKS)
def test_every_engine_gives_the_same_bits(name):
    """Only plain cross-entropy has kernels of its own; every other loss runs in every engine as it does inline."""
    data, loss = TASKS[name]
    model = Own(nn.Conv2d(1, 3, 3, padding=1)) if name == "mask" else Mlp(hidden=(6,))
    task = Task.of(model, data, loss=loss)
    assert not task.stacks
    local = fr.Sgd(lr=0.05, epochs=2, batch=10)
    alone = trained(task, data, rounds=2, local=local)
    assert torch.equal(trained(task, data, rounds=2, local=local, engine=Stacked), alone)
    assert torch.equal(trained(task, data, rounds=2, local=local, engine=Pool, workers=2), alone)


def test_weights_of_one_give_the_model_of_no_weights():
    plain, alike = (Task.of(Mlp(hidden=(6,)), TWO, loss=CrossEntropy(weights)) for weights in ((), (1.0, 1.0)))
    assert plain.stacks
    assert not alike.stacks
    one, other = (trained(task, TWO, rounds=5) for task in (plain, alike))
    assert torch.allclose(one, other, atol=1e-5)


def test_classification_is_what_it_was():
    task = Task.of(Logistic(), TWO)
    assert task == Task(Logistic(), (4,), 2)
    assert (task.loss, task.metrics, task.judged_by) == (CrossEntropy(), (Accuracy(),), "accuracy")


class Dict(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return {"logits": self.layer(x), "features": x}


THREE = federation(np.arange(240) % 3)
TOKENS = from_arrays([(np.zeros((6, 5), int), np.ones((6, 5), int))] * 3, tokens=True, classes=3)


@pytest.mark.parametrize(
    ("message", "data", "model", "settings"),
    [
        (r"has 2 outputs, but there are 3 classes: give its last layer 3", THREE, Own(nn.Linear(4, 2)), {}),
        (r"returns a dict with 'logits', 'features', but this loss takes one tensor", TWO, Own(Dict()), {}),
        (
            r"returns \(2,\).* it must return \(2, 2\), a score",
            TWO,
            Own(nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))),
            {},
        ),
        (r"returns \(2, 2\) for targets of shape \(2,\): it must return one number", NUMERIC, Own(nn.Linear(4, 2)), {}),
        (r"returns \(2, 2\) for targets of shape \(2, 3\)", MANY, Own(nn.Linear(4, 2)), {}),
        (r"it must return \(2, 3, 8, 8\), a score of every class", PICTURES, Own(nn.Conv2d(1, 3, 3)), {}),
        (r"has 2 outputs, but there are 3 classes", PICTURES, Own(nn.Conv2d(1, 2, 1)), {}),
        (r"3 quantiles for every number", NUMERIC, Own(nn.Linear(4, 2)), {"loss": Quantile((0.1, 0.5, 0.9))}),
        (
            r"cross_entropy learns one class each .*have numbers: .*mse, huber",
            NUMERIC,
            Logistic(),
            {"loss": "cross_entropy"},
        ),
        (r"cross_entropy learns .* any number of labels each: binary", MANY, Logistic(), {"loss": CrossEntropy()}),
        (r"mse learns numbers, but the examples have one class each", TWO, Logistic(), {"loss": "mse"}),
        (r"tells 2 classes apart, and there are 3", THREE, Logistic(), {"loss": "binary_cross_entropy"}),
        (
            r"weights must have one number for each of the 3 classes, not 2",
            THREE,
            Logistic(),
            {"loss": CrossEntropy((1.0, 2.0))},
        ),
        (
            r"positive must have one number for each of the 3 labels",
            MANY,
            Logistic(),
            {"loss": BinaryCrossEntropy((1.0, 2.0))},
        ),
        (
            r"mae judges numbers, but this loss learns one of several classes: accuracy",
            TWO,
            Logistic(),
            {"metrics": ["mae"]},
        ),
        (r"accuracy judges .* learns numbers: mae, rmse, r2 would fit", NUMERIC, Logistic(), {"metrics": [Accuracy()]}),
        (
            r"f1 judges .*whatever your own loss takes: your own function",
            TWO,
            Logistic(),
            {"loss": cox, "metrics": ["f1"]},
        ),
        (r"headline 'mae' is not among the figures of this task: accuracy, loss", TWO, Logistic(), {"headline": "mae"}),
        (r"two figures are called 'f1'", TWO, Logistic(), {"metrics": [F1(), F1("micro")]}),
        (r"no loss 'hubert'", NUMERIC, Logistic(), {"loss": "hubert"}),
        (r"must return a tensor of numbers", NUMERIC, Logistic(), {"loss": lambda output, target: 3.0}),
    ],
)
def test_what_does_not_fit_is_refused_in_our_words(message, data, model, settings):
    with pytest.raises(BadInput, match=message):
        Task.of(model, data, **settings)


def test_what_needs_classes_refuses_numbers_and_labels():
    for data, words in ((NUMERIC, "numbers"), (MANY, "any number of labels each")):
        task = Task.of(Logistic(), data)
        for trait in ("histogram", "task2vec"):
            with pytest.raises(BadInput, match=f"needs examples with classes; these have {words}"):
                fr.visits.traits.TRAITS[trait]().check(task)
        for partition in ("dirichlet", "shards", "one_class"):
            with pytest.raises(BadInput, match=f"these examples have {words} .*not one class each"):
                fr.Federation.split(data.source, fr.data.PARTITIONS[partition](), 4)
        with pytest.raises(BadInput, match="not one class each"):
            data.label_counts()
        assert data.classes_of_clients() is None
        assert fr.data.describe(data)["mix"] is None
    target = fr.method(local=ONE_STEP, sampler=fr.plans.sampling.SAMPLERS["target"]())
    with pytest.raises(BadInput, match=r"target sampling must know every client's classes.*not one class each"):
        list(fr.train(target, Inline(NUMERIC, Task.of(Logistic(), NUMERIC)), rounds=1))


def test_numbers_are_split_by_quantiles():
    """One bin each: every client has a fifth of the numbers, all of them between those of its neighbours."""
    split = fr.data.PARTITIONS["quantiles"](bins=5, of=fr.data.Dirichlet(alpha=0.0))
    made = fr.Federation.split(NUMERIC.source, split, 5)
    ranges = sorted(
        (float(y.min()), float(y.max())) for y in (made.source.train.y[made.client(k).rows] for k in range(5))
    )
    assert made.sizes == (48,) * 5
    assert all(before[1] <= after[0] for before, after in pairwise(ranges))
    with pytest.raises(BadInput, match="for targets that are numbers"):
        fr.Federation.split(TWO.source, split, 5)


def test_targets_of_own_arrays_are_what_they_look_like_or_what_is_said():
    assert [data.source.train.target for data in (TWO, TOKENS, PICTURES, MANY, NUMERIC)] == [
        "classes",
        "tokens",
        "mask",
        "labels",
        "numbers",
    ]
    assert [data.source.classes for data in (TWO, TOKENS, PICTURES, MANY, NUMERIC)] == [2, 3, 3, 3, 1]
    counts = federation(CLASSES, target="numbers")
    assert counts.source.train.y.dtype == torch.float32
    with pytest.raises(BadInput, match=r'classes to be whole numbers, or target="numbers" to be said'):
        federation(CLASSES.astype(float))  # classes that were read as floats would become a regression in silence
    with pytest.raises(BadInput, match="targets of client 0: expected numbers, found 1 of 60 values that are NaN"):
        from_arrays([(X[:60], np.where(np.arange(60) == 3, np.nan, NUMBERS[:60]))])
    with pytest.raises(BadInput, match=r"labels from 0 to 1, found 960 outside"):
        from_arrays([(X[:15], np.full((15, 8, 8), 5))], classes=2, test=(X[:1], np.zeros((1, 8, 8), int)))


def merit(answer, target):
    """What is high where the mean absolute error is low."""
    return -(answer - target).abs().double().mean()


def test_the_best_epoch_is_the_one_of_the_lowest_error():
    """So it is the one that a figure with the other sign, of which the highest is best, would choose."""
    local = fr.Sgd(lr=0.3, epochs=6, batch=5, validation=0.2, keep="best")
    lowest, highest = (Task.of(Logistic(), NUMERIC, metrics=[metric]) for metric in ("mae", merit))
    kept = trained(lowest, NUMERIC, rounds=1, local=local)
    assert torch.equal(kept, trained(highest, NUMERIC, rounds=1, local=local))
    assert not torch.equal(kept, trained(lowest, NUMERIC, rounds=1, local=replace(local, keep="last")))
