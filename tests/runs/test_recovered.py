"""Runs with an attacker that makes images: the run is the honest one, and the images are in its folder and report."""

from __future__ import annotations

import numpy as np
import pytest

from fedrelay import BadInput, cli, config
from fedrelay.report.page import html
from fedrelay.report.recovered import grid_of, some
from fedrelay.runs import recovered
from fedrelay.runs.folder import load

TABLES = {
    "rounds": 3,
    "data": {"name": "digits", "clients": 6, "share": 0.1},
    "model": {"name": "small_cnn", "channels": [2]},
    "local": {"lr": 0.2, "batch": 8},
    "algorithm": {"name": "fedseq", "max_clients": 3, "fraction": 1.0},
    "evaluate": {"every": 1},
    "engine": {"name": "inline"},
}
ATTACK = {
    "name": "recovery",
    "discriminators": ["received", "random"],
    "epochs": 1,
    "width": 1,
    "images": 20,
    "every": 1,
    "who": {"name": "count"},
}


PNG = "data:image/png;base64,iVBORw0KGgo"


def done(folder, rounds=3, resume=False, **changes):
    for _ in config.build({**TABLES, "rounds": rounds, **changes}).record(folder, resume=resume).run():
        pass
    return load(folder)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    return done(tmp_path_factory.mktemp("runs") / "attacked", attack=ATTACK)


def test_the_run_is_the_honest_one_to_the_bit_and_sends_no_more(tmp_path, attacked):
    honest = done(tmp_path / "honest")
    assert attacked.summary.params_sha256 == honest.summary.params_sha256
    for mine, theirs in zip(attacked.rounds, honest.rounds, strict=True):
        assert (mine.messages, mine.bytes, mine.metrics) == (theirs.messages, theirs.bytes, theirs.metrics)
    assert not (honest.folder / recovered.FOLDER).exists()


def test_images_of_every_round_are_in_the_folder(attacked):
    made = recovered.read(attacked.folder)
    (attacker,) = {hit.client for log in attacked.rounds for hit in log.attacked}
    assert [(one.round, one.client) for one in made] == [(1, attacker), (2, attacker), (3, attacker)]
    for one in made:
        assert set(one.images) == {"received", "random"}
        assert {(images.shape, images.dtype.name) for images in one.images.values()} == {((20, 1, 8, 8), "uint8")}
    assert [one.round for one in recovered.read(attacked.folder, rounds=2)] == [1, 2]


def test_a_run_that_goes_on_makes_the_same_images(tmp_path, attacked):
    done(tmp_path / "run", rounds=2, attack=ATTACK)
    done(tmp_path / "run", resume=True, attack=ATTACK)
    mine = sorted((tmp_path / "run" / recovered.FOLDER).iterdir())
    theirs = sorted((attacked.folder / recovered.FOLDER).iterdir())
    assert [path.name for path in mine] == [path.name for path in theirs]
    assert all(one.read_bytes() == other.read_bytes() for one, other in zip(mine, theirs, strict=True))


def test_the_report_shows_them(attacked):
    page = html([attacked])
    (attacker,) = {hit.client for log in attacked.rounds for hit in log.attacked}
    assert page.count(f"Images that client {attacker} has made") >= 2
    assert page.count(PNG) == 2
    assert "a random model" in page


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / recovered.FOLDER).mkdir()
    path = tmp_path / recovered.FOLDER / "round-000001-client-0.npz"
    path.write_bytes(b"nothing")
    with pytest.raises(BadInput, match=r"round-000001-client-0\.npz is damaged"):
        recovered.read(tmp_path)
    np.savez(path, received=np.zeros((2, 3)))
    with pytest.raises(BadInput, match=r"'received' should be images in bytes"):
        recovered.read(tmp_path)


def test_images_stand_in_rows_enlarged_with_white_between_them():
    dark, bright = np.zeros((2, 1, 16, 16), np.uint8), np.full((1, 1, 16, 16), 200, np.uint8)
    grid = grid_of([dark, bright])
    assert grid.shape == (68, 68, 3)  # twice 32 pixels and a gap of two
    assert grid[:32, :32].max() == 0
    assert (grid[34:66, :32] == 200).all()
    assert (grid[34:66, 34:] == 255).all()  # there is no second image in the second row


def test_of_many_rounds_the_first_the_last_and_some_between_are_shown():
    shown = [round for round, _ in some([(round, None) for round in range(21)])]
    assert shown == [0, 4, 8, 12, 16, 20]


def test_an_attack_that_needs_images_is_refused_where_there_are_none(tmp_path, capsys):
    path = tmp_path / "table.toml"
    path.write_text(
        '[data]\nname = "diabetes"\n[model]\nname = "mlp"\n[algorithm]\nname = "fedavg"\n[attack]\nname = "recovery"\n'
    )
    assert cli.main(["run", str(path), "--out", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "[attack]: recovery makes images (channels, height, width), and inputs here have the shape (10,)" in line
    assert not (tmp_path / "run").exists()
