from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from fedrelay import cli
from fedrelay.data import digits, load_split
from fedrelay.data.sources import FILES


def test_list_names_every_data_set_and_says_which_are_here(tmp_path, capsys):
    assert cli.main(["data", "list", "--data-dir", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found["data"]] == list(FILES)
    assert not any(row["here"] for row in found["data"])
    assert cli.main(["data", "list", "--data-dir", str(tmp_path)]) == 0
    assert "cifar10" in capsys.readouterr().out


def test_show_prints_figures_and_draws_the_label_mix(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sets = ["--set", "clients=20", "--set", "partition={name='dirichlet', alpha=0.0}"]
    assert cli.main(["data", "show", "digits", *sets, "--save", "split.npz"]) == 0
    printed = capsys.readouterr().out
    assert "1 / 1 / 1" in printed  # classes per client
    with Image.open("split.png") as picture:
        assert len(np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0)) > 3
    assert len(load_split(digits(), Path("split.npz"))) == 20


def test_show_reads_the_data_section_of_a_file_and_gives_json(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text('seed = 3\n[data]\nname = "digits"\nclients = 7\n')
    assert cli.main(["data", "show", "run.toml", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["clients"] == 7
    assert not Path("split.png").exists()


def test_get_of_an_unknown_name_is_refused_with_the_nearest(tmp_path, capsys):
    assert cli.main(["data", "get", "cifar1O", "--data-dir", str(tmp_path)]) == 2
    assert "did you mean 'cifar10'" in capsys.readouterr().err


def test_an_impossible_split_says_the_largest_value_that_works(capsys):
    assert cli.main(["data", "show", "digits", "--set", "clients=9999"]) == 2
    assert "1438" in capsys.readouterr().err.replace(",", "")
