"""Methods over their seeds: which runs belong together, who is best, and when a difference is tested at all."""

from __future__ import annotations

import math
from statistics import fmean, stdev

import pytest
from invented_runs import run_folder

from fedrelay import report
from fedrelay.report.repeats import best_over_seeds, repeats
from fedrelay.report.significance import LEAST_SEEDS, compared, holm

T_975 = {4: 2.7764451, 5: 2.5705818}
"""Student's t by degrees of freedom (any table of it)."""


def runs_of(tmp_path, **values):
    """Runs by name, each with the mean of its last tests for every seed."""
    found = []
    for name, means in values.items():
        for seed, mean in enumerate(means):
            folder = run_folder(tmp_path / name / f"seed-{seed}", algorithm=name.lower(), seed=seed, accuracy=mean)
            found.append(report.load(folder))
    return found


def compared_of(tmp_path, **values):
    runs = runs_of(tmp_path, **values)
    return compared(runs, repeats(runs, [run.name for run in runs]))


def test_runs_that_differ_in_the_seed_only_belong_together(tmp_path):
    runs = runs_of(tmp_path, FedAvg=[0.5, 0.6], FedSeq=[0.7, 0.8])
    flat = [run_folder(tmp_path / f"prox-s{seed}", algorithm="fedprox", seed=seed) for seed in (3, 4)]
    other = run_folder(tmp_path / "prox-s5", algorithm="fedprox", seed=5, extra="mu = 2.0\n")
    again = run_folder(tmp_path / "again", algorithm="fedprox", seed=3)
    runs += [report.load(folder) for folder in (*flat, other, again)]
    found = repeats(runs, report.page.measures.labels(runs))
    assert [(one.name, one.places) for one in found] == [
        ("FedAvg", (0, 1)),
        ("FedSeq", (2, 3)),
        ("prox", (4, 5)),
        ("prox-s5", (6,)),
        ("again", (7,)),  # of a seed that is there already
    ]


def test_the_best_over_all_seeds_is_named(tmp_path):
    runs = runs_of(tmp_path, a=[0.4, 0.6], b=[0.3, 0.4], once=[0.9])
    told = best_over_seeds(runs, repeats(runs, [run.name for run in runs]))
    assert told == "Over 2 seeds a has the best accuracy: 50.0 % ± 14.1 %."
    assert told in report.html(runs)
    assert best_over_seeds(runs[2:], repeats(runs[2:], "bbo")) is None


def test_with_few_seeds_no_test_is_claimed(tmp_path):
    found = compared_of(tmp_path, FedAvg=[0.5, 0.6, 0.7], FedSeq=[0.7, 0.8, 0.9])
    assert (found.base, found.tested) == ("FedAvg", False)
    (pair,) = found.pairs
    assert (pair.seeds, pair.difference, pair.t, pair.wilcoxon) == (3, pytest.approx(0.2), None, None)
    assert "No test is claimed: that takes at least 5 seeds" in " ".join(found.sentences())


def test_differences_are_paired_by_seed(tmp_path):
    """The interval is the textbook's: mean ± t s/√n; five differences of one sign have p = 2/2⁵ by ranks."""
    base, mine = [0.50, 0.61, 0.42, 0.55, 0.47], [0.60, 0.69, 0.54, 0.62, 0.58]
    found = compared_of(tmp_path, FedAvg=base, FedSeq=mine)
    (pair,) = found.pairs
    differences = [a - b for a, b in zip(mine, base, strict=True)]
    reach = T_975[4] * stdev(differences) / math.sqrt(LEAST_SEEDS)
    assert pair.difference == pytest.approx(fmean(differences))
    assert (pair.low, pair.high) == (pytest.approx(pair.difference - reach), pytest.approx(pair.difference + reach))
    assert pair.wilcoxon == pytest.approx(2 / 2**5)
    assert pair.t < 0.01
    told = " ".join(found.sentences())
    assert "cannot give less than 0.0625" in told
    assert "not what other data would" in told


def test_several_comparisons_are_adjusted(tmp_path):
    """Holm 1979: the smallest times n, the next times n - 1, and none below the one before."""
    assert holm([0.04, 0.01, None, 0.03]) == [pytest.approx(0.06), pytest.approx(0.03), None, pytest.approx(0.06)]
    assert holm([0.7, 0.8]) == [1.0, 1.0]
    more = {"FedProx": [0.51, 0.60, 0.43, 0.54, 0.48, 0.5], "FedSeq": [0.60, 0.69, 0.54, 0.62, 0.58, 0.7]}
    found = compared_of(tmp_path, FedAvg=[0.50, 0.61, 0.42, 0.55, 0.47, 0.5], **more)
    assert [pair.name for pair in found.pairs] == ["FedProx", "FedSeq"]
    assert found.pairs[1].wilcoxon == pytest.approx(2 * 2 / 2**6)
    assert "adjusted for 2 comparisons by Holm" in " ".join(found.sentences())
    assert "cannot give less" not in " ".join(found.sentences())


def test_runs_that_do_not_vary_are_not_tested(tmp_path):
    (pair,) = compared_of(tmp_path, FedAvg=[0.5] * 5, FedSeq=[0.5] * 5).pairs
    assert (pair.t, pair.wilcoxon, pair.low, pair.high) == (None, None, 0.0, 0.0)
    assert compared_of(tmp_path / "one", FedAvg=[0.5] * 5) is None
