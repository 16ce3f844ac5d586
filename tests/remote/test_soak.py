"""A short soak; `make soak` is the long one."""

from __future__ import annotations

from needs import posix
from soak import soak


@posix
def test_kills_of_clients_and_of_the_server_leave_the_model_as_it_is_in_the_simulation(tmp_path):
    found = soak(tmp_path, 24, every=4, seed=4)
    assert found.same
    assert found.drops == 0
    assert found.kills["server"] >= 1
    assert sum(found.kills.values()) - found.kills["server"] >= 1
