"""What is refused before a Ray cluster is joined, and what is compared when a worker is hired."""

from __future__ import annotations

import importlib.util
import time

import pytest
import torch
from needs import needed
from test_pool import federation  # noqa: F401 (a fixture)

from fedrelay import BadInput, Task
from fedrelay.engines import Ray, bits
from fedrelay.engines.cluster import joining, machine
from fedrelay.engines.cluster.sending import aligned
from fedrelay.engines.cluster.told import together
from fedrelay.models import Quadratic


@pytest.mark.parametrize(
    "address", ["", "head", "head:", ":6379", "head:0", "head:99999", "head:port", "ray://head:10001"]
)
def test_what_is_no_address_is_refused_before_anything_starts(federation, address):  # noqa: F811
    needed("ray")
    with pytest.raises(BadInput, match=r"(?s)address .* expected|Expected"):
        Ray(federation, Task.of(Quadratic(), federation), address=address)


def test_an_address_where_nobody_answers_is_refused_soon():
    began = time.monotonic()
    with pytest.raises(BadInput, match=r"nobody answers at address '127\.0\.0\.1:1' \(Connection refused\)"):
        joining.check_answers("127.0.0.1:1")
    assert time.monotonic() - began < 2 * joining.PATIENCE


def test_without_ray_it_is_said_how_to_get_it(federation, monkeypatch):  # noqa: F811
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r'Ray is not installed: pip install "fedrelay\[ray\]"'):
        Ray(federation, Task.of(Quadratic(), federation))


def test_zero_workers_are_refused(federation):  # noqa: F811
    with pytest.raises(BadInput, match="workers must be at least 1, not 0"):
        Ray(federation, Task.of(Quadratic(), federation), workers=0)


def test_other_versions_are_named_before_settings_are():
    here = machine.facts()
    assert machine.difference(here, dict(here)) == ""
    there = {**here, "torch": "9.9", "sums": "x"}
    assert "torch 9.9 instead of" in machine.difference(here, there)
    assert machine.difference(here, there).endswith("install the same versions on all machines")
    assert "results would depend on where they are computed" in machine.difference(here, {**here, "MKL_CBWR": "SSE2"})


def test_a_run_that_was_begun_inline_can_go_on_with_ray():
    assert bits({"name": "ray", "workers": 3, "address": "auto"}) == bits({"name": "inline"})


def test_bytes_begin_where_tensors_do():
    wide = torch.arange(256, dtype=torch.uint8).numpy()
    for start in range(0, 65, 13):
        found = aligned(wide[start : start + 100])
        assert found.ctypes.data % 64 == 0
        assert found.tolist() == list(range(start, start + 100))


def test_what_several_chains_tell_is_summed_and_one_chain_tells_all():
    one, other = {"hop": (1, 4), "model": (2, 5)}, {"hop": (3, 6)}
    assert together([one]) == one
    assert together([one, other]) == {"hop": (4, 10)}
