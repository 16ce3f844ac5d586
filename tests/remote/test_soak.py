"""A short soak; `make soak` is the long one."""

from __future__ import annotations

from pathlib import Path

from needs import posix
from soak import LEAST, SERVER, SPARED, Soaked, soak


@posix
def test_kills_of_clients_and_of_the_server_leave_the_model_as_it_is_in_the_simulation(tmp_path):
    found = soak(tmp_path, 24, every=4, seed=4)
    assert found.same
    assert found.drops == 0
    assert found.kills["server"] >= 1
    assert sum(found.kills.values()) - found.kills["server"] >= 1
    assert found.between >= 1
    assert len(found.megabytes[SPARED]) >= LEAST or not Path("/proc/self/fd").exists()
    assert found.grown() == []


def test_what_grows_is_noticed_and_what_is_flat_is_not():
    def soaked(megabytes, files, of_server) -> Soaked:
        found = Soaked(True, 0, {}, 1.0)
        found.megabytes[SPARED], found.files[SPARED], found.files[SERVER] = megabytes, files, of_server
        return found

    flat, many = [300.0 + place % 2 for place in range(20)], [12, 14] * 10
    assert soaked(flat, many, [22] * 20).grown() == []
    assert soaked([300 + 4.0 * place for place in range(20)], many, many).grown() == ["336 MB became 376"]
    assert soaked(flat, list(range(12, 32)), many).grown() == ["21 open files became 31"]
    assert soaked(flat, many, list(range(12, 32))).grown() == ["21 open files of the server became 31"]
    assert soaked([1.0, 900.0], [1, 90], [1, 90]).grown() == []  # too few to say anything
