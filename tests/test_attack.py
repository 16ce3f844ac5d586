"""A slice of `make attack`: a few trials of every kind, always the same ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RUN = ROOT / "attack" / "run.py"

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the attacks look into /proc")


def test_a_slice_of_every_attack_holds(tmp_path):
    results = tmp_path / "results.json"
    done = subprocess.run(
        [sys.executable, RUN, "--slice", "--minutes", "30", "--results", results, "--out", tmp_path / "out"],
        capture_output=True,
        text=True,
        errors="replace",
    )
    kinds = json.loads(results.read_text())["kinds"] if results.exists() else {}
    assert {name: row["problems"] for name, row in kinds.items() if row["broke"]} == {}
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(kinds) == 12
    assert all(row["tried"] and not row["out_of_time"] for row in kinds.values())
    assert not (tmp_path / "out").exists()


def test_every_reader_takes_a_whole_file_that_is_damaged_later(tmp_path):
    """A file that is refused before it is damaged shows nothing; of archives, those with links are refused."""
    program = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import warm
folder = pathlib.Path(sys.argv[2])
warm.prepare(folder)
from readers import READERS
for number, reader in enumerate(READERS):
    own = folder / str(number)
    own.mkdir()
    reader.lay(own, reader.seeds()[0])
    reader.read(own)
print(len(READERS))
"""
    command = [sys.executable, "-W", "ignore", "-c", program, RUN.parent, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == 29


def test_an_attack_leaves_an_existing_folder_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    done = subprocess.run([sys.executable, RUN, "--out", tmp_path / "mine"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "exists: name a folder that does not" in done.stderr
    assert list((tmp_path / "mine").iterdir()) == []
