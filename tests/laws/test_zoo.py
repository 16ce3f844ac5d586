"""Every method on every engine, from one seed: the same bits inline and in workers, the same numbers stacked, and on
each of them the same bits after a stop and a resume from a checkpoint. And what its row in the table says is so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zoo

from fedrelay import adapted
from fedrelay.algorithms import ALGORITHMS
from fedrelay.models import Fused, Mlp

PAIRS = (
    "fedseq+fedprox",
    "fedseq+scaffold",
    "fedseq+feddyn",
    "fedseqinter+fedprox",
    "fedseqinter+scaffold",
    "fedseqinter+feddyn",
    "fedprox+scaffold",
    "fedsam+feddyn",
    "fedseq+fedfusion",
    "fedseq+fednova",
    "fedseq+elmy",
    "fedseqinter+fednova",
    "fedseqinter+moon",
    "fedmmd+fedfusion",
)


@pytest.fixture(scope="module")
def pools() -> Iterator[zoo.Pools]:
    with zoo.shared_pools() as made:
        yield made


@pytest.mark.parametrize("name", [*ALGORITHMS, *PAIRS])
def test_a_method_gives_the_same_on_every_engine_also_after_a_resume(name, pools, tmp_path):
    zoo.check_engines(name, pools, tmp_path)


@pytest.mark.parametrize("local", [zoo.PLAIN, zoo.LOCAL], ids=["plain", "momentum"])
@pytest.mark.parametrize("name", [name for name, row in ALGORITHMS.items() if row.is_fedavg is not None])
def test_a_method_is_fedavg_with_the_settings_that_its_row_gives(name, local):
    zoo.check_is_fedavg(name, local)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_the_row_of_a_method_says_is_so(name):
    zoo.check_row(name)


@pytest.mark.parametrize("name", [name for name, row in ALGORITHMS.items() if not row.recipe().pooled])
def test_a_method_ends_at_the_common_optimum_of_equal_clients_or_says_what_it_lacks(name):
    zoo.check_rest(name)


def test_fedfusion_alone_and_joined_trains_a_fused_model():
    for name in ("fedfusion", "fedseq+fedfusion", "fedmmd+fedfusion"):
        algorithm = zoo.made(name)
        task = zoo.task_for(zoo.federation_for(algorithm))
        assert adapted(algorithm, task).model == Fused(Mlp(hidden=(8,)))
