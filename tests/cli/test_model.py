"""The commands for the model of a finished run."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
import torch

from fedrelay import cli

TOML = """
rounds = 2
[data]
name = "digits"
clients = 4
client_tests = 0.1
[model]
name = "logistic"
[algorithm]
name = "fedavg"
[engine]
name = "inline"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "file.toml").write_text(TOML)
    assert cli.main(["run", str(folder / "file.toml"), "--out", str(folder / "run")]) == 0
    return folder / "run"


def test_predictions_are_printed_as_csv_and_how_many_are_right_beside_it(run, capsys):
    assert cli.main(["predict", str(run), "digits"]) == 0
    said = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(said.out)))
    right = sum(row["prediction"] == row["label"] for row in rows)
    assert f"{right} of {len(rows)} are right" in said.err


def test_predictions_go_into_a_file(run, tmp_path, capsys):
    assert cli.main(["predict", str(run), "digits", "--out", str(tmp_path / "deep" / "out.csv")]) == 0
    rows = list(csv.DictReader((tmp_path / "deep" / "out.csv").read_text().splitlines()))
    assert f"Wrote {len(rows)} predictions" in capsys.readouterr().out
    (tmp_path / "file").touch()
    assert cli.main(["predict", str(run), "digits", "--out", str(tmp_path / "file" / "out.csv")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_the_model_is_exported(run, tmp_path, capsys):
    assert cli.main(["export", str(run), "--out", str(tmp_path / "model.pt")]) == 0
    assert set(torch.load(tmp_path / "model.pt", weights_only=True)) == {"head.weight", "head.bias"}
    assert cli.main(["export", str(run), "--torchscript", "--out", str(tmp_path / "model.bin")]) == 0
    with pytest.warns(DeprecationWarning, match=r"torch\.jit\.load"):
        assert torch.jit.load(tmp_path / "model.bin")(torch.zeros(3, 1, 8, 8)).shape == (3, 10)
    assert cli.main(["export", str(run), "--onnx", "--out", str(tmp_path / "model.onnx")]) == 0
    assert (tmp_path / "model.onnx").is_file()


@pytest.mark.parametrize("command", [["export", "--out", "x.pt"], ["predict", "digits"]])
def test_what_is_no_finished_run_is_refused(command, tmp_path, capsys):
    assert cli.main([command[0], str(tmp_path / "nowhere"), *command[1:]]) == 2
    assert "is not a run folder" in capsys.readouterr().err


def test_the_report_prints_a_table_of_clients_and_writes_csv(run, tmp_path, capsys):
    words = ["report", str(run), "--out", str(tmp_path / "page.html"), "--csv", str(tmp_path / "csv")]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert "client 3" in said
    assert "10th percentile" in said
    assert len(list(csv.DictReader((tmp_path / "csv" / "clients.csv").read_text().splitlines()))) == 4
