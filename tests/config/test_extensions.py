"""Parts of a user's own package are chosen by name, listed with the package, and named in the run's configuration.

A package is what is on the path with its dist-info, so these tests install one into a temporary folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import tomli_w

import fedrelay

MODULE = '''
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import nn

from fedrelay import data
from fedrelay.algorithms import Change
from fedrelay.tasks import CrossEntropy
from fedrelay.visits import Proximal


def nearby(*, pull: float = 0.5) -> Change:
    """FedAvg with a spring, by another name."""
    return Change(terms=(Proximal(pull),))


@dataclass(frozen=True)
class Tiny:
    """One layer."""

    bias: bool = True
    loss: ClassVar[str] = "mine"

    def __call__(self, shape, classes, /):
        return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), classes, bias=self.bias))


class Mine(CrossEntropy):
    """Cross-entropy by another name."""


def few(*, count: int = 300):
    """The first digits."""
    whole = data.digits()
    rows = np.arange(count)
    return data.Source("few", data.Examples(whole.train.x[rows], whole.train.y[rows]), whole.test, 10)


@dataclass(frozen=True)
class Halves:
    """Two clients."""

    def __call__(self, source, clients, rng, /):
        return np.array_split(np.arange(len(source.train)), 2)
'''
ENTRIES = {
    "algorithms": {"nearby": "nearby"},
    "models": {"tiny": "Tiny"},
    "losses": {"mine": "Mine"},
    "data": {"few": "few"},
    "partitions": {"halves": "Halves"},
}
TABLES = {
    "rounds": 1,
    "data": {"name": "few", "count": 200, "partition": "halves"},
    "model": {"name": "tiny", "bias": False},
    "local": {"steps": 1},
    "algorithm": {"name": "nearby", "pull": 0.25},
    "engine": {"name": "pool", "workers": 2},
}


def install(folder: Path, name: str, entries: dict[str, dict[str, str]], *, module: str = MODULE, version: str = "1.5"):
    """A package as an installer leaves it."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (folder / f"{name}.py").write_text(module)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [
        f"[fedrelay.{kind}]\n" + "".join(f"{key} = {name}:{value}\n" for key, value in names.items())
        for kind, names in entries.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


def fedrelay_of(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(site), str(Path(fedrelay.__file__).parents[1])])
    there = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "500"}
    command = [sys.executable, "-m", "fedrelay.cli", *arguments]
    return subprocess.run(command, env=there, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def site(tmp_path) -> Path:
    install(tmp_path / "site", "hospital", ENTRIES)
    return tmp_path / "site"


def test_a_run_of_parts_of_another_package_says_which_and_can_be_repeated(site, tmp_path):
    (tmp_path / "own.toml").write_text(tomli_w.dumps(TABLES))
    first = fedrelay_of(site, tmp_path, "run", "own.toml", "--out", "one", "--json")
    assert first.returncode == 0, first.stderr
    resolved = tomllib.loads((tmp_path / "one" / "config.toml").read_text())
    assert resolved["packages"] == {"hospital": "1.5"}
    assert resolved["algorithm"]["pull"] == 0.25
    assert resolved["data"]["clients"] == 2
    again = fedrelay_of(site, tmp_path, "run", "one/config.toml", "--out", "two", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["params_sha256"] == json.loads(first.stdout)["params_sha256"]
    missing = fedrelay_of(tmp_path, tmp_path, "run", "one/config.toml", "--out", "three")
    assert missing.returncode == 2
    assert "this run takes parts from hospital 1.5, which is not installed" in missing.stderr
    install(tmp_path / "newer", "hospital", ENTRIES, version="2.0")
    other = fedrelay_of(tmp_path / "newer", tmp_path, "run", "one/config.toml", "--out", "three")
    assert other.returncode == 2
    assert "takes parts from hospital 1.5, and 2.0 is installed" in other.stderr


def test_they_are_listed_with_their_package(site, tmp_path):
    found = json.loads(fedrelay_of(site, tmp_path, "list", "--json").stdout)
    for kind, names in ENTRIES.items():
        entries = {entry["name"]: entry for entry in found[kind]}
        for name in names:
            assert entries[name]["package"] == "hospital 1.5"
    assert {entry["name"]: entry for entry in found["algorithms"]}["nearby"]["parameters"]["pull"] == 0.5
    assert all("package" not in entry for entry in found["engines"])
    assert "One layer. (from hospital 1.5)" in fedrelay_of(site, tmp_path, "list", "models").stdout


def test_a_name_that_is_ours_or_anothers_is_refused_and_a_broken_part_breaks_nothing_else(site, tmp_path):
    clashing = {"algorithms": {"fedavg": "nearby"}, "models": {"tiny": "Tiny"}, "modells": {"odd": "Tiny"}}
    install(site, "clinic", clashing)
    install(site, "broken", {"partitions": {"odd": "Odd"}}, module="import a_module_that_nobody_has\n")
    base = {**TABLES, "model": {"name": "logistic"}, "algorithm": {"name": "fedprox"}}
    (tmp_path / "own.toml").write_text(tomli_w.dumps(base))
    good = fedrelay_of(site, tmp_path, "run", "own.toml", "--out", "good")
    assert good.returncode == 0, good.stderr
    expected = {
        "model.name=tiny": "[model]: 'tiny' cannot be used: the name is claimed by hospital 1.5 and by clinic 1.5",
        "algorithm.name=fedavg": "'fedavg' cannot be used: the name is claimed by fedrelay itself and by clinic 1.5",
        "data.partition=odd": "'odd' cannot be used: broken:Odd of broken 1.5 cannot be loaded (ModuleNotFoundError",
    }
    for change, message in expected.items():
        done = fedrelay_of(site, tmp_path, "run", "own.toml", "--set", change, "--out", "bad")
        assert done.returncode == 2
        swapped = message.replace("hospital 1.5 and by clinic 1.5", "clinic 1.5 and by hospital 1.5")
        assert message in done.stderr or swapped in done.stderr
    listed = fedrelay_of(site, tmp_path, "list")
    assert "cannot be used: broken:Odd of broken 1.5 cannot be loaded" in listed.stdout
    assert "clinic has 'odd' in fedrelay.modells, which is no kind of part" in listed.stderr
