"""A checkpoint costs what has changed since the last one, and holds everything all the same."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_checkpoint import TABLES, lines_of

from fedrelay import BadInput, config
from fedrelay.engines.memory import Memory
from fedrelay.plans.grouping.groups import Alone, Grouped
from fedrelay.runs import checkpoint, unchanged
from fedrelay.runs.contents import Elsewhere
from fedrelay.runs.unchanged import Checkpoints
from fedrelay.system.sequences import Integers
from fedrelay.types import Baton, State

CLIENTS, WIDTH = 500, 1000  # 2 MB of memories


def state_of(round: int, memo: dict | None = None) -> State:
    return State(round, (Baton(torch.full((3,), float(round))),), {}, {}, memo or {})


def sizes_of(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir()}


class Kept:
    """Memories of many clients, of which a few change from round to round."""

    def __init__(self) -> None:
        self.memory, self.round = Memory(), 0
        self.expected: dict[int, float] = {}
        self.change(range(CLIENTS))

    def change(self, clients) -> None:
        self.round += 1
        for client in clients:
            self.expected[client] = self.round + client / CLIENTS
            self.memory.stage(client, {"control": torch.full((WIDTH,), self.expected[client])})
        self.memory.commit(self.round)

    def check(self, folder: Path) -> None:
        state, memories = checkpoint.load(folder)
        assert state.round == self.round
        assert {client: float(tree["control"][-1]) for client, tree in memories.items()} == pytest.approx(self.expected)


def test_whatever_changes_a_checkpoint_holds_everything(tmp_path):
    kept, saving, rng = Kept(), Checkpoints(tmp_path), np.random.default_rng(0)
    for count in (0, 1, 3, 200, 0, 5, 5, 5, CLIENTS, 40, 40, 40, 40, 40, 40, 1):
        saving.save(state_of(kept.round), kept.memory.all())
        kept.check(tmp_path)
        kept.change(rng.choice(CLIENTS, count, replace=False).tolist())


def test_a_checkpoint_writes_what_has_changed_and_files_do_not_pile_up(tmp_path):
    kept, saving = Kept(), Checkpoints(tmp_path)
    saving.save(state_of(kept.round), kept.memory.all())
    whole, written, most = sum(sizes_of(tmp_path).values()), [], 0
    for number in range(100):
        before = set(sizes_of(tmp_path))
        kept.change([number * 5 + place for place in range(5)])  # 1 in 100
        saving.save(state_of(kept.round), kept.memory.all())
        now = sizes_of(tmp_path)
        written.append(sum(size for name, size in now.items() if name not in before))
        most = max(most, sum(now.values()))
        assert len(now) <= 10
    kept.check(tmp_path)
    assert np.median(written) < whole / 10
    assert sum(written) < 8 * whole  # 100 times, if all were written always
    assert most < 2.5 * whole


def test_memories_of_another_store_are_not_taken_for_the_same(tmp_path):
    saving, first, other = Checkpoints(tmp_path), Kept(), Kept()
    saving.save(state_of(1), first.memory.all())
    other.expected = dict.fromkeys(range(CLIENTS), -1.0)
    other.memory = Memory()
    for client in range(CLIENTS):
        other.memory.stage(client, {"control": torch.full((WIDTH,), -1.0)})
    other.memory.commit(1)
    saving.save(state_of(1), other.memory.all())
    other.check(tmp_path)


def test_what_the_plan_knows_of_a_million_clients_is_written_once(tmp_path):
    clients = 1_000_000
    groups = Grouped.of(np.arange(clients), np.full(clients // 10, 10))
    memo = {"groups": groups, "sizes": Integers.of(np.full(clients, 7)), "sampler": {"made": 0}}
    saving = Checkpoints(tmp_path)
    for round in (1, 2, 3):
        saving.save(state_of(round, {**memo, "sampler": {"made": round}}), {})
    small = checkpoint.files_in(tmp_path)[-1]
    assert small.stat().st_size < 10_000
    assert len(checkpoint.parts_in(tmp_path)) == 1
    loaded = checkpoint.load(tmp_path)[0].memo
    assert loaded["sampler"] == {"made": 3}
    assert loaded["groups"] == groups
    assert loaded["sizes"] == memo["sizes"]
    saving.save(state_of(4, {"sizes": Integers.of(np.full(clients, 8))}), {})
    assert not checkpoint.parts_in(tmp_path)  # nobody needs it any longer
    assert checkpoint.load(tmp_path)[0].memo["sizes"][5] == 8


def test_a_tensor_that_is_written_into_is_saved_anew(tmp_path):
    memo, saving = {"rows": torch.zeros(10**6), "told": torch.ones(10**6)}, Checkpoints(tmp_path)
    for round in (1, 2, 3):
        memo["rows"][0] = round
        saving.save(state_of(round, memo), {})
        assert checkpoint.load(tmp_path)[0].memo["rows"][0] == round
    assert sum(sizes_of(tmp_path).values()) < 9_000_000  # the other one is beside it


@pytest.mark.parametrize("name", ["scaffold", "fedgsp"])
def test_a_run_with_parts_goes_on_to_the_same_bits(name, tmp_path, monkeypatch):
    def recorder(folder: str, *, resume: bool = False):
        tables = {**TABLES, "checkpoint": 1, "algorithm": {"name": name, "fraction": 0.5}}
        return config.build(tables).record(tmp_path / folder, resume=resume)

    list(recorder("whole").run())
    monkeypatch.setattr(unchanged, "SMALL", 0)
    monkeypatch.setattr(unchanged, "LARGE", 1)
    rounds = recorder("stopped").run()
    for _ in range(3):
        next(rounds)
    rounds.close()
    assert checkpoint.parts_in(tmp_path / "stopped" / "checkpoint")
    resumed = recorder("stopped", resume=True)
    list(resumed.run())
    assert lines_of(tmp_path / "stopped") == lines_of(tmp_path / "whole")
    assert resumed.summary().params_sha256 == recorder("whole", resume=True).summary().params_sha256


def saved(folder: Path) -> Path:
    """A checkpoint with a part of memories and one of tensors; the part of tensors."""
    kept, saving, memo = Kept(), Checkpoints(folder), {"sizes": Integers.of(np.full(10**6, 7))}
    for _ in range(2):
        saving.save(state_of(kept.round, memo), kept.memory.all())
    first = checkpoint.index_of(checkpoint.files_in(folder)[-1])[0]
    assert first.beside.memories
    return folder / first.beside.tensors[0]


def test_a_part_that_is_missing_or_damaged_is_named(tmp_path):
    part = saved(tmp_path)
    content = part.read_bytes()
    part.unlink()
    with pytest.raises(BadInput, match=rf"{part.name} is damaged \(it is missing, and the checkpoint needs it"):
        checkpoint.load(tmp_path)
    part.write_bytes(content[:-1] + b"!")
    with pytest.raises(BadInput, match=rf"{part.name} is damaged \(its content does not match the fingerprint"):
        checkpoint.load(tmp_path)


def test_parts_that_nobody_needs_are_swept_and_needed_ones_are_not(tmp_path):
    saved(tmp_path)
    left = tmp_path / f"part-{'0' * 64}.pt"  # of somebody who was killed before the checkpoint was there
    left.write_bytes(b"half")
    before = set(sizes_of(tmp_path))
    checkpoint.keep_only(checkpoint.files_in(tmp_path)[-1])
    assert set(sizes_of(tmp_path)) == before - {left.name}
    checkpoint.load(tmp_path)


@pytest.mark.parametrize("name", ["../model.pt", "part-1.pt", 7])
def test_no_file_but_a_part_is_ever_opened(name, tmp_path):
    path = checkpoint.save(tmp_path, state_of(1), {}, beside=checkpoint.Beside(tensors=("part-x",)))
    content = path.read_bytes().replace(b'"part-x"', checkpoint.json.dumps(name).encode())
    length = len(content) - len(path.read_bytes())
    words = int.from_bytes(content[-8:], "little") + length
    content = content[:-8] + words.to_bytes(8, "little")
    path.unlink()
    (tmp_path / f"round-000001-{checkpoint.hashlib.sha256(content).hexdigest()}.pt").write_bytes(content)
    with pytest.raises(BadInput, match="its index cannot be read"):
        checkpoint.load(tmp_path)


def test_a_tensor_that_is_in_no_part_is_missed(tmp_path):
    part = saved(tmp_path)
    other = tmp_path / checkpoint.save_part(tmp_path, {99: torch.zeros(3)})
    state, _ = checkpoint.load(tmp_path)
    main = checkpoint.files_in(tmp_path)[-1]
    beside = checkpoint.index_of(main)[0].beside
    raw = checkpoint.read(main, checkpoint.index_of(main)[0].place)
    checkpoint.save(tmp_path, replace(raw, round=9), {}, beside=beside._replace(tensors=(other.name,)))
    assert state.memo["sizes"][0] == 7
    assert not part.exists()
    with pytest.raises(BadInput, match="should be beside tensor 1"):
        checkpoint.load(tmp_path)


@pytest.mark.parametrize("number", [None, [1], "1"])
def test_a_crafted_place_of_a_tensor_is_damage(tmp_path, number):
    place = Elsewhere(1)
    vars(place)["number"] = number
    beside = checkpoint.Beside(tensors=(checkpoint.save_part(tmp_path, {1: torch.zeros(3)}),))
    checkpoint.save(tmp_path, state_of(1, {"sizes": place}), {}, beside=beside)
    with pytest.raises(BadInput, match="the number of a tensor beside the state should be a whole number"):
        checkpoint.load(tmp_path)


def test_a_sequence_that_says_it_is_long_takes_no_memory_to_be_hashed():
    tracemalloc.start()
    try:
        hash(Alone(100_000_000))
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()
    assert hash(Integers.of([3, 4])) == hash((3, 4))
