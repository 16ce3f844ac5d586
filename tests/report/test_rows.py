"""Runs as frames of pandas and as CSV files."""

from __future__ import annotations

import csv
import sys

import pytest
from invented_runs import ACCURACIES, HOSPITALS, judged_folder, line_of, run_folder

from fedrelay import report
from fedrelay.errors import BadInput


@pytest.fixture
def folders(tmp_path):
    drop = {"client": 3, "chain": 0, "hop": 1, "reason": "lost"}
    lines = [line_of(number, accuracy, drops=[drop]) for number, accuracy in enumerate(ACCURACIES, 1)]
    one = judged_folder(tmp_path / "one", HOSPITALS, lines=lines, extra="fraction = 0.5\nparts = [1, 2]\n")
    return [one, run_folder(tmp_path / "two", finished=False)]


def test_every_round_of_every_run_is_a_row(folders):
    frame = report.frame(folders)
    assert len(frame) == 8
    first = frame[frame["run"] == "one"]
    assert first["round"].tolist() == [1, 2, 3, 4]
    assert first["metrics.accuracy"].dropna().tolist() == [0.2, 0.6, 0.9]
    assert first["bytes.client_to_client"].tolist() == [600] * 4
    assert first["drops"].tolist() == [1] * 4


def test_every_run_that_has_ended_is_a_row_with_its_settings(folders):
    frame = report.summaries(folders)
    assert frame["run"].tolist() == ["one"]
    row = frame.iloc[0]
    assert (row["final_accuracy"], row["bytes.total"], row["rounds_to.0.9"]) == (0.9, 4000, 4)
    assert (row["config.algorithm.fraction"], row["config.algorithm.parts"]) == (0.5, "[1, 2]")
    assert row["config.data.name"] == "digits"


def test_every_client_is_a_row(folders):
    frame = report.clients(folders[0])
    assert dict(zip(frame["name"], frame["accuracy"], strict=True)) == HOSPITALS
    assert set(frame["run"]) == {"one"}


def test_csv_files_hold_the_same_rows(folders, tmp_path):
    written = report.write_csv([*folders, folders[0]], tmp_path / "deep" / "csv")
    assert [path.name for path in written] == ["rounds.csv", "summaries.csv", "clients.csv"]
    rows = {path.stem: list(csv.DictReader(path.read_text().splitlines())) for path in written}
    assert {name: len(found) for name, found in rows.items()} == {"rounds": 8, "summaries": 1, "clients": 3}
    assert [row["metrics.accuracy"] for row in rows["rounds"]][:4] == ["0.2", "", "0.6", "0.9"]
    assert {row["name"]: float(row["accuracy"]) for row in rows["clients"]} == HOSPITALS


def test_csv_files_need_a_folder(folders, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="is a file: name a folder"):
        report.write_csv(folders, tmp_path / "file")
    with pytest.raises(BadInput, match="cannot be written"):
        report.write_csv(folders, tmp_path / "file" / "csv")


def test_without_pandas_frames_say_what_to_install_and_csv_works(folders, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadInput, match=r'pip install "fedrelay\[table\]"'):
        report.frame(folders)
    assert report.write_csv(folders, tmp_path / "csv")


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(BadInput, match="is not a run folder"):
        report.frame(tmp_path / "nowhere")
