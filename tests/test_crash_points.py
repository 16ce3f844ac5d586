"""Wherever a command is cut, by a kill or a full disk, the same command goes on to the same result.

Tried here: all faults at the first operations of `run`, and every so many-th of the others. All of them are tried by
`make attack`, with the same functions.
"""

from __future__ import annotations

import pytest

pytest.importorskip("fcntl", reason="Windows has no fork")
import crash_points
import faults

FIRST = 14
"""Operations of `run` until its folder, lock, configuration and record are there."""
STRIDES = {"run": 11, "longer": 17, "compare": 61, "tune": 127, "groups": 7}


@pytest.mark.parametrize("command", STRIDES)
def test_a_command_that_was_cut_goes_on_to_the_same_result(command, tmp_path):
    operations, expected = crash_points.whole(command, tmp_path)
    every = faults.trials(operations)
    chosen = every[:: STRIDES[command]]
    if command == "run":
        chosen = sorted({*chosen, *(fault for fault in every if fault[0] <= FIRST)})
    broken = {}
    for n, kind in chosen:
        said = crash_points.tried(command, n, kind, expected=expected, folder=tmp_path / "cut")
        if said:
            broken[n, operations[n - 1], kind] = said
    assert not broken
