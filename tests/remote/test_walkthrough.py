"""docs/deploy.md, followed word for word between machines that are network namespaces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from needs import posix
from walkthrough import alone, lacks

from fedrelay import config

pytestmark = posix


def test_the_walk_through_ends_with_the_model_of_the_simulation_on_every_machine(tmp_path: Path) -> None:
    if reason := lacks():
        pytest.skip(f"network namespaces cannot be made here: {reason}")
    done = alone(tmp_path)
    assert done.returncode == 0, done.stdout
    tables = tmp_path / "tables"
    tables.mkdir()
    for name in ("north", "south"):
        (tables / f"{name}.csv").write_bytes((tmp_path / name / "patients.csv").read_bytes())
    read = config.read(
        tmp_path / "relay" / "hospitals.toml",
        ["engine.name=inline", f"data.path={tables}", f"data.test={tmp_path / 'relay' / 'test.csv'}"],
    )
    recorder = config.build(read).record(tmp_path / "simulated")
    list(recorder.run())
    found = json.loads((tmp_path / "relay" / "runs" / "hospitals" / "summary.json").read_text(encoding="utf-8"))
    assert found["params_sha256"] == recorder.summary().params_sha256
    assert found["drops"] == 0
    assert not (tmp_path / "relay" / "keys" / "clients").exists()  # as the page says: carried, and deleted here
