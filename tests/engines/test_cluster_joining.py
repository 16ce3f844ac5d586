"""What is refused before a Ray cluster is joined, and what is compared when a worker is hired."""

from __future__ import annotations

import importlib.util
import os
import re

import pytest
import torch
from needs import needed
from test_pool import federation  # noqa: F401 (a fixture)

from fedrelay import BadInput, RunFailed, Task
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
    with pytest.raises(BadInput, match=r"nobody answers at address '127\.0\.0\.1:1' \(Connection refused\)"):
        joining.check_answers("127.0.0.1:1")


def test_a_name_that_no_machine_can_have_is_refused():
    with pytest.raises(BadInput, match="nobody answers at address 'é"):
        joining.check_answers(f"{'é' * 99}:6379")


def test_other_versions_of_python_or_ray_are_told_in_full():
    """As Ray tells them, in several lines."""
    ray = needed("ray._private.utils")
    there = {"ray_version": "1.0.0", "python_version": "3.9.0"}
    with pytest.raises(RuntimeError) as refused:
        ray.check_version_info(there, "here")
    said = str(joining.not_joined("auto", refused.value))
    assert re.search(r"started with: Ray: 1\.0\.0 Python: 3\.9\.0 This process on here .* Ray: \d.* Python: 3\.", said)
    assert "Install the same versions" in said


def test_a_cluster_of_our_own_that_does_not_start_is_no_matter_of_the_address():
    found = joining.not_joined("local", RuntimeError("The current node timed out during startup."))
    assert isinstance(found, RunFailed)
    assert "could not start a cluster on this machine: The current node timed out" in str(found)


def test_ray_waits_only_as_long_as_it_is_told_unless_the_user_has_said_otherwise(monkeypatch):
    monkeypatch.delenv(joining.WAIT, raising=False)
    with joining.waiting(1):
        assert os.environ[joining.WAIT] == "1"
    assert joining.WAIT not in os.environ
    monkeypatch.setenv(joining.WAIT, "7")
    with joining.waiting(1):
        assert os.environ[joining.WAIT] == "7"
    assert os.environ[joining.WAIT] == "7"


def test_the_token_of_a_cluster_of_our_own_is_in_the_environment_only_while_it_is_joined(monkeypatch):
    for name in (joining.TOKEN, f"{joining.TOKEN}_PATH"):
        monkeypatch.delenv(name, raising=False)
    with joining.lent_token("local"):
        first = os.environ[joining.TOKEN]
    assert joining.TOKEN not in os.environ
    with joining.lent_token("local"):
        assert os.environ[joining.TOKEN] == first  # Ray reads it once in a program
    assert joining.TOKEN not in os.environ
    with joining.lent_token("10.0.0.1:6379"):
        assert joining.TOKEN not in os.environ
    monkeypatch.setenv(joining.TOKEN, "the user's")
    with joining.lent_token("local"):
        assert os.environ[joining.TOKEN] == "the user's"
    assert os.environ[joining.TOKEN] == "the user's"


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
