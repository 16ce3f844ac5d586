"""Losses beside torch's and scikit-learn's values of the same thing."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics
import torch
from torch.nn import functional

from fedrelay import BadInput
from fedrelay.tasks import (
    LOSSES,
    PADDING,
    BinaryCrossEntropy,
    CrossEntropy,
    Huber,
    MeanSquaredError,
    OwnLoss,
    PixelCrossEntropy,
    Quantile,
)

DRAW = torch.Generator().manual_seed(0)
LOGITS = torch.randn(12, 3, generator=DRAW)
CLASSES = torch.randint(0, 3, (12,), generator=DRAW)
NUMBERS = torch.randn(12, generator=DRAW) * 3
GUESSES = torch.randn(12, generator=DRAW) * 3
LABELS = torch.randint(0, 2, (12, 3), generator=DRAW).bool()
PIXELS = torch.randn(12, 3, 4, 5, generator=DRAW)
MASK = torch.randint(0, 3, (12, 4, 5), generator=DRAW)


def in_two(loss, output, target) -> float:
    """The mean over a whole set that comes in two batches of unlike sizes."""
    tally = loss.tally()
    tally.add(output[:5], target[:5])
    tally.add(output[5:], target[5:])
    return tally.value()


def test_cross_entropy_is_scikit_learns_log_loss_and_weights_are_its_sample_weights():
    chances = LOGITS.double().softmax(-1).numpy()
    plain = sklearn.metrics.log_loss(CLASSES.numpy(), chances)
    assert float(CrossEntropy()(LOGITS, CLASSES)) == pytest.approx(plain, rel=1e-5)
    assert in_two(CrossEntropy(), LOGITS, CLASSES) == pytest.approx(plain, rel=1e-5)
    weights = (1.0, 0.5, 4.0)
    weighted = sklearn.metrics.log_loss(CLASSES.numpy(), chances, sample_weight=np.array(weights)[CLASSES.numpy()])
    assert float(CrossEntropy(weights)(LOGITS, CLASSES)) == pytest.approx(weighted, rel=1e-5)
    assert in_two(CrossEntropy(weights), LOGITS, CLASSES) == pytest.approx(weighted, rel=1e-5)
    assert weighted != pytest.approx(plain, rel=1e-2)


def test_weights_of_one_are_no_weights():
    alike = CrossEntropy((1.0, 1.0, 1.0))
    assert torch.equal(alike(LOGITS, CLASSES), CrossEntropy()(LOGITS, CLASSES))
    assert in_two(BinaryCrossEntropy((1.0,)), LOGITS, LABELS) == in_two(BinaryCrossEntropy(), LOGITS, LABELS)


@pytest.mark.parametrize("weights", [(), (1.0, 0.5, 4.0)])
def test_every_pixel_counts_once_and_padding_not_at_all(weights):
    mask = MASK.clone()
    mask[:, 0] = PADDING
    flat, wanted = PIXELS[:, :, 1:].movedim(1, -1).reshape(-1, 3), MASK[:, 1:].reshape(-1)
    expected = float(functional.cross_entropy(flat, wanted, torch.tensor(weights) if weights else None))
    loss = PixelCrossEntropy(weights)
    assert float(loss(PIXELS, mask)) == pytest.approx(expected, rel=1e-5)
    assert in_two(loss, PIXELS, mask) == pytest.approx(expected, rel=1e-5)


def test_binary_cross_entropy_is_log_loss_of_one_output_and_the_mean_over_labels():
    yes = (CLASSES == 1).long()
    expected = sklearn.metrics.log_loss(yes.numpy(), LOGITS[:, 0].double().sigmoid().numpy())
    assert float(BinaryCrossEntropy()(LOGITS[:, :1], yes)) == pytest.approx(expected, rel=1e-5)
    assert in_two(BinaryCrossEntropy(), LOGITS[:, :1], yes) == pytest.approx(expected, rel=1e-5)
    each = [sklearn.metrics.log_loss(LABELS[:, k], LOGITS[:, k].double().sigmoid().numpy()) for k in range(3)]
    assert in_two(BinaryCrossEntropy(), LOGITS, LABELS) == pytest.approx(np.mean(each), rel=1e-5)


def test_a_yes_counts_as_much_more_as_it_is_told():
    more = (2.0, 1.0, 5.0)
    chance, wanted = LOGITS.double().sigmoid(), LABELS.double()
    by_hand = -(torch.tensor(more) * wanted * chance.log() + (1 - wanted) * (1 - chance).log()).mean()
    assert float(BinaryCrossEntropy(more)(LOGITS, LABELS)) == pytest.approx(float(by_hand), rel=1e-5)


@pytest.mark.parametrize("shape", [(12,), (12, 1)])
def test_squared_and_huber_errors_are_those_of_scikit_learn_and_of_the_definition(shape):
    """A network with one output returns (n, 1): taken as it is beside n targets it would make n times n differences."""
    output = GUESSES.reshape(shape)
    squared = sklearn.metrics.mean_squared_error(NUMBERS.numpy(), GUESSES.numpy())
    assert float(MeanSquaredError()(output, NUMBERS)) == pytest.approx(squared, rel=1e-5)
    assert in_two(MeanSquaredError(), output, NUMBERS) == pytest.approx(squared, rel=1e-5)
    off = (GUESSES - NUMBERS).abs().double()
    huber = float(torch.where(off <= 1.5, off**2 / 2, 1.5 * (off - 0.75)).mean())
    assert in_two(Huber(1.5), output, NUMBERS) == pytest.approx(huber, rel=1e-5)
    assert float(Huber(1.5)(output, NUMBERS)) == pytest.approx(huber, rel=1e-5)


def test_quantiles_are_scikit_learns_pinball_losses():
    levels, output = (0.1, 0.5, 0.9), LOGITS * 3
    each = [
        sklearn.metrics.mean_pinball_loss(NUMBERS.numpy(), output[:, place].numpy(), alpha=level)
        for place, level in enumerate(levels)
    ]
    assert float(Quantile(levels)(output, NUMBERS)) == pytest.approx(np.mean(each), rel=1e-5)
    assert in_two(Quantile(levels), output, NUMBERS) == pytest.approx(np.mean(each), rel=1e-5)
    assert torch.equal(Quantile(levels).answer(output, NUMBERS), output[:, 1])  # the median is what metrics judge


def cox(output, target):
    """Partial likelihood of proportional hazards: targets are times and whether the event was seen."""
    order = target[:, 0].argsort(descending=True)
    risk, event = output.squeeze(-1)[order], target[order, 1]
    return -((risk - risk.logcumsumexp(0)) * event).sum() / event.sum()


def test_an_own_loss_of_a_test_set_is_that_of_the_whole_not_of_its_batches():
    target = torch.stack([NUMBERS.abs(), torch.tensor([1.0, 0.0] * 6)], 1)
    whole = OwnLoss(cox, outputs_needed=1)
    assert in_two(whole, LOGITS[:, :1], target) == pytest.approx(float(cox(LOGITS[:, :1], target)))
    halves = [float(cox(LOGITS[a:b, :1], target[a:b])) for a, b in ((0, 5), (5, 12))]
    batched = OwnLoss(cox, whole=False)
    assert in_two(batched, LOGITS[:, :1], target) == pytest.approx((5 * halves[0] + 7 * halves[1]) / 12)


def test_an_own_loss_may_take_several_outputs():
    def spread(output, target):
        return (output["mean"] - target) ** 2 + output["width"]

    output = {"mean": GUESSES, "width": GUESSES.abs()}
    parts = [{key: value[rows] for key, value in output.items()} for rows in (slice(0, 5), slice(5, 12))]
    tally = OwnLoss(spread).tally()
    tally.add(parts[0], NUMBERS[:5])
    tally.add(parts[1], NUMBERS[5:])
    assert tally.value() == pytest.approx(float(spread(output, NUMBERS).mean()))


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_of_the_table_says_what_it_learns_and_can_be_made_without_settings(name):
    loss = LOSSES[name]()
    assert loss.targets
    assert loss == LOSSES[name]()


@pytest.mark.parametrize(
    "make",
    [
        lambda: CrossEntropy((-1.0, 1.0)),
        lambda: CrossEntropy((0.0, 0.0)),
        lambda: Huber(0.0),
        lambda: Quantile(()),
        lambda: Quantile((0.0,)),
        lambda: Quantile((1.0,)),
        lambda: OwnLoss("mse"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make):
    with pytest.raises(BadInput, match=r"must|takes"):
        make()
