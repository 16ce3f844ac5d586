"""How many cores are ours, in made-up containers of both versions of control groups."""

from __future__ import annotations

import pytest
import torch

from fedrelay.engines.pool import dispatch
from fedrelay.system import cores
from fedrelay.system.cores import available, processor_quota, usable


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """One of sixteen cores, on all of which we may run; nothing is said by the user."""
    monkeypatch.setattr(cores, "affinity", lambda: 16)
    monkeypatch.delenv(cores.CORES, raising=False)


def member(folder, text):
    path = folder / "member"
    path.write_text(text)
    return path


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


SECOND, FIRST = "0::/jobs/run-7\n", "12:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/x\n"


@pytest.mark.parametrize(
    ("groups", "files", "quota", "ours"),
    [
        (SECOND, {}, None, 16),
        (SECOND, {"jobs/run-7/cpu.max": "max 100000"}, None, 16),
        (SECOND, {"jobs/run-7/cpu.max": "400000 100000"}, 4, 4),
        (SECOND, {"jobs/run-7/cpu.max": "max 100000", "jobs/cpu.max": "250000 50000"}, 5, 5),  # of a group around ours
        (SECOND, {"jobs/run-7/cpu.max": "150000 100000", "cpu.max": "300000 100000"}, 1.5, 2),
        ("0::/\n", {"cpu.max": "120000 100000"}, 1.2, 1),  # a container sees its own group as the root
        ("0::/../../outside\n", {"cpu.max": "20000 100000"}, 0.2, 1),
        ("0::/elsewhere\n", {"cpu.max": "3200000 100000"}, 32, 16),  # more than we may run on
        (
            FIRST,
            {"cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "-1", "cpu,cpuacct/docker/abc/cpu.cfs_period_us": "1"},
            None,
            16,
        ),
        (FIRST, {"cpu/docker/abc/cpu.cfs_quota_us": "200000", "cpu/docker/abc/cpu.cfs_period_us": "100000"}, 2, 2),
        (FIRST, {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5, 1),  # as seen from inside
        (FIRST, {"memory/docker/abc/cpu.max": "100000 100000"}, None, 16),  # not the group of processors
        (SECOND, {"jobs/run-7/cpu.max": "100000 0"}, None, 16),
        (SECOND, {"jobs/run-7/cpu.max": "nonsense"}, None, 16),
        ("nonsense", {}, None, 16),
    ],
)
def test_the_quota_of_a_container_bounds_the_cores(groups, files, quota, ours, tmp_path):
    where = write(tmp_path / "groups", files), member(tmp_path, groups)
    assert processor_quota(*where) == quota
    assert available(*where) == ours


def test_there_may_be_no_control_groups_at_all(tmp_path):
    assert available(tmp_path / "no", tmp_path / "member") == 16


def test_what_the_user_says_comes_first(monkeypatch):
    monkeypatch.setattr(cores, "available", lambda: 3)
    assert usable() == dispatch.cores() == 3
    monkeypatch.setenv(cores.CORES, "7")
    assert usable() == dispatch.cores() == 7
    monkeypatch.setenv(cores.CORES, "many")
    assert usable() == 3


def test_torch_is_held_to_the_cores_that_are_ours(monkeypatch):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        monkeypatch.setenv(cores.CORES, "8")
        dispatch.within_cores()
        assert torch.get_num_threads() == 4  # fewer than there are is the user's wish
        monkeypatch.setenv(cores.CORES, "2")
        dispatch.within_cores()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
