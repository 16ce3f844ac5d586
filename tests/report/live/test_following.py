"""A run that another process writes: only what is new is read, and nothing is refused."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from invented_runs import line_of, run_folder

from fedrelay.errors import BadInput, RunFailed
from fedrelay.runs.claim import alone_in
from fedrelay.runs.following import FAILED, FINISHED, KILLED, RUNNING, STARTING, STOPPED, Following, runs_below
from fedrelay.runs.holder import Holder


def added(folder, text: str) -> None:
    with (folder / "rounds.jsonl").open("a") as file:
        file.write(text)


def test_every_look_takes_what_is_new_and_a_line_only_when_it_is_whole(tmp_path):
    folder = run_folder(tmp_path / "run", [line_of(1)], finished=False)
    following = Following(folder)
    assert following.look().done == 1
    line = json.dumps(line_of(2))
    added(folder, line[:20])
    assert following.look().done == 1
    added(folder, line[20:] + "\n")
    glance = following.look()
    assert (glance.done, glance.total, glance.damaged, glance.part) == (2, 4, 0, 0)


def test_damaged_lines_are_skipped_and_counted_and_those_after_them_are_read(tmp_path):
    folder = run_folder(tmp_path / "run", [line_of(1)], finished=False)
    added(folder, '{"round": 2, "cli\n\x00\xff\n' + json.dumps(line_of(4)) + "\n" + json.dumps(line_of(4)) + "\n")
    glance = Following(folder).look()
    assert [log.round for log in glance.run.rounds] == [1, 4]
    assert glance.damaged == 3  # the last is round 4 again


def test_a_lost_line_costs_its_own_round_only_and_the_run_is_finished_all_the_same(tmp_path):
    folder = run_folder(tmp_path / "run", [line_of(number) for number in range(1, 26)], rounds=25)
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    (folder / "rounds.jsonl").write_text("".join(lines[:4] + lines[5:]))
    glance = Following(folder).look()
    assert [log.round for log in glance.run.rounds] == [*range(1, 5), *range(6, 26)]
    assert (glance.done, glance.damaged, glance.status) == (25, 0, FINISHED)


def test_a_run_that_goes_on_from_its_checkpoint_begins_anew(tmp_path):
    """Lines after the checkpoint are rewritten, in a file that takes the place of the old one."""
    folder = run_folder(tmp_path / "run", [line_of(1), line_of(2)], finished=False)
    following = Following(folder)
    assert following.look().part == 0
    (folder / "new").write_text(json.dumps(line_of(1)) + "\n")
    (folder / "new").replace(folder / "rounds.jsonl")
    glance = following.look()
    assert (glance.done, glance.part) == (1, 1)


def test_the_state_of_a_run_is_what_its_lock_and_its_last_process_say(tmp_path):
    folder = run_folder(tmp_path / "run", finished=False)
    following = Following(folder)
    assert following.look().status == STOPPED
    with alone_in(folder):
        glance = following.look()
        assert (glance.status, glance.pid) == (RUNNING, Holder.here().pid)
        (folder / "config.toml").rename(folder / "away")
        assert following.look().status == STARTING
        (folder / "away").rename(folder / "config.toml")
    assert following.look().status == STOPPED
    with pytest.raises(RunFailed), alone_in(folder):
        raise RunFailed("round 3: every chain failed")
    glance = following.look()
    assert (glance.status, glance.why) == (FAILED, "round 3: every chain failed")
    with pytest.raises(MemoryError), alone_in(folder):
        raise MemoryError  # it has no text
    glance = following.look()
    assert (glance.status, glance.why) == (FAILED, "MemoryError")
    for harmless in (BadInput("another configuration"), KeyboardInterrupt()):
        with pytest.raises(type(harmless)), alone_in(folder):
            raise harmless
        assert following.look().status == STOPPED
    (folder / "checkpoint" / ".holder.json").write_text(json.dumps(asdict(Holder.here())))  # as kill -9 leaves it
    assert following.look().status == KILLED
    assert Following(run_folder(tmp_path / "other")).look().status == FINISHED


def test_the_time_left_is_that_of_the_last_rounds(tmp_path):
    """Two of four rounds are done, each in half a second: one second is left."""
    folder = run_folder(tmp_path / "run", [line_of(1), line_of(2)], finished=False)
    assert Following(folder).look().seconds_left is None  # nobody works at it
    with alone_in(folder):
        assert Following(folder).look().seconds_left == pytest.approx(1.0)


def test_a_summary_of_an_earlier_part_does_not_end_a_run(tmp_path):
    folder = run_folder(tmp_path / "run")
    added(folder, json.dumps(line_of(5)) + "\n")
    assert Following(folder).look().status == STOPPED


def test_runs_are_found_below_a_folder_and_links_are_not_followed(tmp_path):
    found = [run_folder(tmp_path / "here" / name) for name in ("a", "b/seed-0", "b/seed-1")]
    (tmp_path / "here" / "empty").mkdir()
    run_folder(tmp_path / "elsewhere" / "c")
    (tmp_path / "here" / "link").symlink_to(tmp_path / "elsewhere")
    assert runs_below(tmp_path / "here") == found
    assert runs_below(found[0]) == found[:1]
    assert runs_below(tmp_path / "nowhere") == []
