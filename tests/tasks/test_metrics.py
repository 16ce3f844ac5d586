"""Metrics of a set that comes in batches, beside scikit-learn's of the whole set."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import sklearn.metrics as sk
import torch

from fedrelay import BadInput
from fedrelay.tasks import METRICS, PADDING, Form, Headline, Mae, OwnMetric, TopK
from fedrelay.tasks.metrics import metric_of

DRAW = torch.Generator().manual_seed(1)
SCORES = torch.randn(90, 7, generator=DRAW)
CLASSES = torch.randint(0, 6, (90,), generator=DRAW)  # there is no example of class 6
CLASSES[:40] = CLASSES[:40].sort().values  # so batches have unlike mixes
LOGITS = torch.randn(90, generator=DRAW) * 0.2 + 0.5  # many batches lie wholly between 0 and 1, as chances would
YES = (torch.rand(90, generator=DRAW) < LOGITS.sigmoid() - 0.3).long()
MANY = torch.randn(90, 4, generator=DRAW)
LABELS = torch.rand(90, 4, generator=DRAW) < torch.tensor([0.5, 0.3, 0.1, 0.0])  # nobody has the last
NUMBERS = torch.randn(90, generator=DRAW) + 1000
GUESSES = NUMBERS + torch.randn(90, generator=DRAW) * 0.3
CHANCES = SCORES.double().softmax(-1).numpy()


def found(name: str, form: Form, answer, target, batch: int = 13) -> float:
    metric = metric_of(name)
    metric.check(form)
    tally = metric.tally(form)
    for start in range(0, len(target), batch):
        tally.add(answer[start : start + batch], target[start : start + batch])
    return tally.value()


SEVEN = Form("classes", 7)
BINARY = Form("binary", 1)
FOUR = Form("labels", 4)


def one_against_others(figure) -> float:
    return float(np.mean([figure(CLASSES.numpy() == k, CHANCES[:, k]) for k in range(6)]))


def test_of_several_classes():
    best = CHANCES.argmax(-1)
    expected = {
        "accuracy": sk.accuracy_score(CLASSES, best),
        "top5": sk.top_k_accuracy_score(CLASSES, CHANCES, k=5, labels=range(7)),
        "f1": sk.f1_score(CLASSES, best, average="macro"),
        "auroc": one_against_others(sk.roc_auc_score),
        "average_precision": one_against_others(sk.average_precision_score),
        "iou": sk.jaccard_score(CLASSES, best, average="macro"),
        "dice": sk.f1_score(CLASSES, best, average="macro"),
        "perplexity": math.exp(sk.log_loss(CLASSES, CHANCES, labels=range(7))),
    }
    assert {name: found(name, SEVEN, SCORES, CLASSES) for name in expected} == pytest.approx(expected, rel=1e-5)


def test_word_accuracy_leaves_out_the_unknown_and_the_end():
    words = ~np.isin(CLASSES.numpy(), (4, 6))  # the third last of seven classes, and the last
    expected = sk.accuracy_score(CLASSES[words], CHANCES.argmax(-1)[words])
    assert 0 < words.sum() < 90
    assert found("word_accuracy", SEVEN, SCORES, CLASSES) == pytest.approx(expected)
    padded = torch.where(torch.arange(90) % 2 == 0, CLASSES, PADDING)
    kept = words & (np.arange(90) % 2 == 0)
    expected = sk.accuracy_score(CLASSES[kept], CHANCES.argmax(-1)[kept])
    assert found("word_accuracy", SEVEN, SCORES, padded) == pytest.approx(expected)
    with pytest.raises(BadInput, match="leaves out class -3, but there are 2 classes"):
        found("word_accuracy", Form("classes", 2), SCORES, CLASSES)


@pytest.mark.parametrize("two_scores", [True, False])
def test_of_two_classes_the_figures_are_those_of_class_1(two_scores):
    """As scikit-learn has it by default; whether the network has one output or a score for each class."""
    answer = torch.stack([torch.zeros(90), LOGITS], 1) if two_scores else LOGITS
    form = Form("classes", 2) if two_scores else BINARY
    said = (LOGITS > 0).long()
    expected = {
        "accuracy": sk.accuracy_score(YES, said),
        "f1": sk.f1_score(YES, said),
        "auroc": sk.roc_auc_score(YES, LOGITS),
        "average_precision": sk.average_precision_score(YES, LOGITS),
    }
    assert {name: found(name, form, answer, YES) for name in expected} == pytest.approx(expected, rel=1e-5)


def test_of_labels():
    """Of a label that nobody has there is no curve: it is left out of the mean, not counted as 0."""
    said = MANY > 0
    expected = {
        "accuracy": float((said == LABELS).float().mean()),
        "f1": sk.f1_score(LABELS, said, average="macro", zero_division=0),
        "auroc": np.mean([sk.roc_auc_score(LABELS[:, k], MANY[:, k]) for k in range(3)]),
        "average_precision": np.mean([sk.average_precision_score(LABELS[:, k], MANY[:, k]) for k in range(3)]),
    }
    assert {name: found(name, FOUR, MANY, LABELS) for name in expected} == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("several", [False, True])
def test_of_numbers(several):
    target = torch.stack([NUMBERS, NUMBERS.flip(0) * 2], 1) if several else NUMBERS
    answer = torch.stack([GUESSES, NUMBERS.flip(0) * 2 + 0.1], 1) if several else GUESSES
    expected = {
        "mae": sk.mean_absolute_error(target, answer),
        "rmse": sk.root_mean_squared_error(target, answer),
        "r2": sk.r2_score(target, answer),
    }
    form = Form("numbers", 2 if several else 1)
    assert {name: found(name, form, answer, target) for name in expected} == pytest.approx(expected, rel=1e-4)


def test_of_masks_all_pixels_count_together():
    """Beside the mean over pictures, which is another figure."""
    answer, mask = SCORES[:80, :3].reshape(5, 4, 4, 3), (CLASSES[:80] % 3).reshape(5, 4, 4)
    mask = mask.clone()
    mask[0, 0] = PADDING
    there = (mask != PADDING).reshape(-1).numpy()
    said, wanted = answer.argmax(-1).reshape(-1).numpy()[there], mask.reshape(-1).numpy()[there]
    form = Form("classes", 3)
    assert found("iou", form, answer, mask, 2) == pytest.approx(sk.jaccard_score(wanted, said, average="macro"))
    assert found("dice", form, answer, mask, 2) == pytest.approx(sk.f1_score(wanted, said, average="macro"))
    assert found("accuracy", form, answer, mask, 2) == pytest.approx(sk.accuracy_score(wanted, said))
    foreground, yes = LOGITS[:80].reshape(5, 4, 4) - 0.5, YES[:80].reshape(5, 4, 4)
    said = (foreground > 0).reshape(-1).long()
    assert found("iou", BINARY, foreground, yes, 2) == pytest.approx(sk.jaccard_score(yes.reshape(-1), said))
    assert found("dice", BINARY, foreground, yes, 2) == pytest.approx(sk.f1_score(yes.reshape(-1), said))


def test_perplexity_is_over_all_places_that_count():
    scores, tokens = SCORES[:84].reshape(7, 12, 7), CLASSES[:84].reshape(7, 12).clone()
    tokens[:, 9:] = PADDING
    logs = scores[:, :9].double().log_softmax(-1).gather(-1, tokens[:, :9, None])
    assert found("perplexity", SEVEN, scores, tokens, 3) == pytest.approx(math.exp(-float(logs.mean())), rel=1e-5)


def test_what_cannot_be_told_of_these_examples_is_not_a_number_and_no_warning():
    ones = torch.ones(4, dtype=torch.int64)
    assert math.isnan(found("auroc", BINARY, LOGITS[:4], ones))
    assert math.isnan(found("average_precision", BINARY, LOGITS[:4], 0 * ones))
    assert math.isnan(found("r2", Form("numbers", 1), GUESSES[:1], NUMBERS[:1]))
    assert Headline("r2", share=False).merit(math.nan) == -math.inf


def test_a_metric_of_ones_own_sees_all_answers_at_once():
    def median_error(answer, target):
        return (answer - target).abs().median()

    metric = OwnMetric(median_error, higher_is_better=False)
    tally = metric.tally(Form("numbers", 1))
    for start in range(0, 90, 13):
        tally.add(GUESSES[start : start + 13], NUMBERS[start : start + 13])
    assert tally.value() == float(median_error(GUESSES, NUMBERS))
    assert (metric.name, metric.higher_is_better, metric.share) == ("median_error", False, False)
    assert metric_of(median_error).name == "median_error"


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_that_does_not_fit_is_refused_with_those_that_do(name):
    metric = METRICS[name]()
    assert metric.name == name
    for form in ("classes", "binary", "labels", "numbers"):
        if form not in metric.forms:
            fitting = "mae, rmse, r2" if form == "numbers" else "accuracy"
            with pytest.raises(BadInput, match=f"the metric {name} judges .*{fitting}"):
                metric.check(Form(form, 9))


def test_bad_metrics_are_refused():
    with pytest.raises(BadInput, match="the metric top5 needs at least 5 classes, and there are 4"):
        TopK(5).check(Form("classes", 4))
    with pytest.raises(BadInput, match="no metric 'acc'"):
        metric_of("acc")
    with pytest.raises(BadInput, match="a metric, its name or a function"):
        metric_of(Mae)
    with pytest.raises(BadInput, match="name of the loss itself"):
        OwnMetric(max, "loss")
    with pytest.raises(BadInput, match="the metric max could not judge 90 examples"):
        found(max, Form("numbers", 1), GUESSES, NUMBERS)


def test_torchmetrics_is_imported_only_for_a_figure_of_it():
    code = "import sys, fedrelay; sys.exit('torchmetrics' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
