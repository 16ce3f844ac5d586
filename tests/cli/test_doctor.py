from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from fedrelay import cli
from fedrelay.data.sources import FILES
from fedrelay.kernels.native import library
from fedrelay.studies.doctor import examine, packages
from fedrelay.studies.doctor.examine import writable
from fedrelay.studies.doctor.machine import memory, processor_quota, processors
from fedrelay.studies.doctor.self_test import self_test

ROOT = Path(__file__).parents[2]


def test_a_tiny_run_gives_the_same_bits_resumed_and_by_other_processes():
    found = self_test()
    assert [(one.name, one.found, one.wrong) for one in found[1:]] == [
        ("resumed", "the same bits", False),
        ("pool of two processes", "the same bits", False),
    ]


def test_other_bits_are_wrong_and_end_with_1(monkeypatch, capsys):
    monkeypatch.setattr("fedrelay.studies.doctor.self_test.resumed", lambda folder: "other")
    monkeypatch.setattr("fedrelay.studies.doctor.self_test.in_one_go", lambda folder, engine: "bits")
    assert cli.main(["doctor", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["fine"] is False
    assert [one["name"] for one in found["findings"] if one["wrong"]] == ["resumed"]


def test_a_run_that_fails_is_a_finding_and_not_the_end(monkeypatch):
    def broken(folder, engine):
        raise OSError("no more processes")

    monkeypatch.setattr("fedrelay.studies.doctor.self_test.in_one_go", broken)
    (found,) = self_test()
    assert found.wrong
    assert "no more processes" in found.found


def test_without_optional_packages_it_says_what_they_are_for_and_how_to_get_them(monkeypatch, capsys):
    for name in ("ray", "grpc"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    assert cli.main(["doctor", "--no-self-test"]) == 0  # nothing that is needed is missing
    lines = capsys.readouterr().out.splitlines()
    for extra, package in (("ray", "ray"), ("remote", "grpcio")):
        number = next(n for n, line in enumerate(lines) if line.split()[1:2] == [extra])
        assert f"{packages.PURPOSES[extra]}: {package} missing" in lines[number]
        assert f'pip install "fedrelay[{extra}]"' in lines[number + 1]


def test_a_package_that_is_needed_and_missing_is_wrong(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert cli.main(["doctor", "--no-self-test"]) == 1
    assert "wrong: h5py" in capsys.readouterr().out


def test_every_extra_has_its_purpose():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*project["optional-dependencies"]} - {*packages.UNUSUAL} <= {*packages.PURPOSES}


def test_every_package_of_an_extra_that_is_installed_is_found():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    texts = [text for extra, needed in project.items() if extra not in packages.UNUSUAL for text in needed]
    names = {re.match(r"[\w.-]+", text)[0].lower().replace("_", "-") for text in texts}
    installed = {str(one.name).lower().replace("_", "-") for one in metadata.distributions()}
    assert [name for name in sorted(names & installed) if not packages.here(name)] == []


def test_the_compiled_part_is_told_with_its_blas_or_why_it_is_not_here(monkeypatch):
    monkeypatch.setattr(library, "found", lambda: library.Found(None, 0, "SciPy's BLAS", draws=False))
    found = packages.compiled()
    assert "with SciPy's BLAS, taken by [engine] native = true" in found.found
    assert not found.remedy
    monkeypatch.setattr(library, "found", lambda: "there was no compiler")
    found = packages.compiled()
    assert (found.wrong, found.remedy) == (False, library.REMEDY)
    assert "there was no compiler" in found.found


def test_data_sets_that_are_here_are_named(tmp_path):
    for name in ("train.npz", "test.npz"):
        (tmp_path / name).touch()
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (raw / f"{part}-ubyte").touch()
    assert FILES["mnist"].present(tmp_path)
    (found,) = (one for one in examine(tmp_path, test=False) if one.topic == "data")
    assert found.found == "mnist"


@pytest.mark.parametrize(("text", "cores"), [("150000 100000", 1.5), ("max 100000", None), ("", None), ("x", None)])
def test_the_quota_of_a_container_is_read(text, cores, tmp_path):
    (tmp_path / "cpu.max").write_text(text)
    assert processor_quota(tmp_path) == cores


def test_limits_are_said(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDRELAY_CORES", "8")
    (tmp_path / "cpu.max").write_text("50000 100000")
    (tmp_path / "memory.max").write_text(str(2**29))
    found = processors(tmp_path)[0]
    assert "the container's quota is worth 0.5" in found.found
    assert "FEDRELAY_CORES=1" in found.remedy
    assert "the container may use 0.5 GB" in memory(tmp_path).found
    assert memory(tmp_path).remedy


def test_a_folder_that_cannot_be_written_is_wrong(tmp_path):
    (tmp_path / "file").touch()
    assert writable("cache", tmp_path / "file").wrong  # a file where the folder should be
    assert not writable("cache", tmp_path / "new" / "below").wrong
