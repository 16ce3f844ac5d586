"""Images that stay on disk: the same result as in memory, and little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fedrelay as fr
from fedrelay import BadInput, Sgd, Task
from fedrelay.algorithms import fedavg
from fedrelay.data import from_folder
from fedrelay.data.stores.on_disk import StoredExamples, write_rows
from fedrelay.engines import Inline, Pool
from fedrelay.engines.packing import pack
from fedrelay.models import SmallCnn

METHOD = fr.method(fedavg(), local=Sgd(lr=0.05, epochs=2, batch=4), fraction=1.0)


def folder_of(base: Path, clients: int = 3, each: int = 6) -> Path:
    rng = np.random.default_rng(0)
    for client in range(clients):
        for kind in ("ill", "well"):
            place = base / f"hospital {client}" / kind
            place.mkdir(parents=True)
            for number in range(each):
                Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(place / f"{number}.png")
    return base


def trained(federation, engine=Inline, **options) -> torch.Tensor:
    runner = engine(federation, Task.of(SmallCnn(), federation), 3, **options)
    *_, state = fr.train(METHOD, runner, rounds=2)
    runner.close()
    return fr.deployed(state, METHOD).vectors[0]


def test_images_on_disk_give_the_model_that_images_in_memory_give_to_the_bit(tmp_path):
    folder = folder_of(tmp_path / "scans")
    expected, found = from_folder(folder, size=8), from_folder(folder, size=8, on_disk=True)
    assert isinstance(found.source.train, StoredExamples)
    assert found.source.train.form == expected.source.train.form
    assert (found.names, found.fingerprint) == (expected.names, expected.fingerprint)
    model = trained(expected)
    assert torch.equal(trained(found), model)
    assert torch.equal(trained(found, Pool, workers=2), model)


def test_the_images_are_not_sent_to_other_processes_but_their_path_is(tmp_path):
    store = from_folder(folder_of(tmp_path / "scans"), size=64, on_disk=True).source.train
    store.take(slice(0, 4))
    packed = pack(store)
    assert len(packed.skeleton) + packed.size < 64 * 64 * 3  # less than one image


def test_the_file_is_written_once_and_anew_when_an_image_changes(tmp_path):
    folder = folder_of(tmp_path / "scans")
    first = from_folder(folder, size=8, on_disk=True).source.train.path
    written = first.stat().st_mtime_ns
    assert from_folder(folder, size=8, on_disk=True).source.train.path.stat().st_mtime_ns == written
    Image.fromarray(np.zeros((20, 20, 3), np.uint8)).save(folder / "hospital 0" / "ill" / "0.png")
    store = from_folder(folder, size=8, on_disk=True, test=0.01).source.train
    assert store.path != first
    assert not first.exists()
    assert [path.name for path in (folder / ".fedrelay").glob("*.npy")] == [store.path.name]


def test_a_damaged_image_leaves_no_half_file(tmp_path):
    folder = folder_of(tmp_path / "scans")
    damaged = folder / "hospital 1" / "ill" / "3.png"
    damaged.write_bytes(damaged.read_bytes()[:-40])  # its beginning is whole
    with pytest.raises(BadInput, match=r"3\.png: expected an image"):
        from_folder(folder, size=8, on_disk=True)
    assert [path.suffix for path in (folder / ".fedrelay").iterdir()] == [".npz"]  # what was seen at the first look


def test_deep_images_on_disk_are_scaled_as_those_in_memory(tmp_path):
    rng = np.random.default_rng(0)
    for client in ("north", "south"):
        for kind in ("ill", "well"):
            (tmp_path / client / kind).mkdir(parents=True)
            for number in range(4):
                pixels = rng.integers(0, 4096, (8, 8), dtype=np.uint16)
                Image.fromarray(pixels).save(tmp_path / client / kind / f"{number}.png")
    expected, found = from_folder(tmp_path, size=8), from_folder(tmp_path, size=8, on_disk=True)
    assert torch.equal(found.source.train.take(slice(0, 9))[0], expected.source.train.take(slice(0, 9))[0])
    assert (found.source.notes, found.source.prepared) == (expected.source.notes, expected.source.prepared)


def test_a_file_that_was_cut_is_refused(tmp_path):
    store = from_folder(folder_of(tmp_path / "scans"), size=8, on_disk=True).source.train
    store.path.write_bytes(store.path.read_bytes()[:-100])
    with pytest.raises(BadInput, match=r"expected examples that were stored whole"):
        store.take(slice(0, 2))


def test_rows_that_are_unlike_or_too_few_are_refused(tmp_path):
    rows = [np.zeros((2, 3), np.uint8), np.zeros((2, 4), np.uint8)]
    with (tmp_path / "a").open("wb") as stream, pytest.raises(BadInput, match=r"rows must be alike, found \(3,\)"):
        write_rows(stream, 4, rows)
    with (tmp_path / "b").open("wb") as stream, pytest.raises(BadInput, match=r"3 rows were to be stored, found 2"):
        write_rows(stream, 3, rows[:1])


MEASURED = """
import json, sys
from pathlib import Path
import numpy as np, torch
import fedrelay as fr
from fedrelay.data import Federation, Natural, Source
from fedrelay.data.augment import Normalise
from fedrelay.data.stores.on_disk import StoredExamples, write_rows

def resident(what):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) * 1024

path, rows, side = Path(sys.argv[1]), int(sys.argv[2]), 64
rng = np.random.default_rng(0)
with path.open("wb") as stream:
    write_rows(stream, rows, (rng.integers(0, 256, (500, side, side, 3), dtype=np.uint8) for _ in range(rows // 500)))
y = torch.arange(rows) % 2
store = StoredExamples(path, torch.arange(rows), y, Normalise((0.5,), (0.5,)))
source = Source("large", store, store.picked(torch.arange(500)), 2, owners=np.arange(rows) // (rows // 4))
federation = Federation.split(source, Natural())
engine = fr.engines.Inline(federation, fr.Task.of(fr.models.Logistic(), federation), 0)
before = resident("VmRSS")
method = fr.method(fr.algorithms.fedavg(), local=fr.Sgd(lr=0.01, batch=50), fraction=1.0)
*_, state = fr.train(method, engine, rounds=1)
print(json.dumps({"before": before, "peak": resident("VmHWM"), "examples": state.log.examples}))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read from /proc")
def test_training_on_a_file_larger_than_a_limit_stays_below_it(tmp_path):
    rows = 40_000
    size = rows * 64 * 64 * 3  # 491 MB
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, tmp_path / "large.npy", str(rows)], check=True, capture_output=True, text=True
    )
    found = json.loads(done.stdout)
    assert (tmp_path / "large.npy").stat().st_size > size
    assert found["examples"] == rows  # every row was read
    assert found["peak"] - found["before"] < size // 4
