"""Whatever a user can get wrong ends with exit code 2 and one clear line, and not with a traceback."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import fedrelay as fr
from fedrelay.cli.main import main
from fedrelay.cli.words import LONGEST, shortened, told
from fedrelay.engines.pool.dispatch import cores
from fedrelay.errors import BadInput, RunFailed, within

PLAIN = """
rounds = 1
data = { name = "synthetic", examples = 40, test_examples = 20, shape = [4], clients = 4 }
model = { name = "mlp" }
local = { lr = 0.1 }
algorithm = { name = "fedavg" }
engine = { name = "inline" }
"""
NINES = "9" * 5000


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text(PLAIN)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """What a command says that must end with exit code 2."""
    try:
        code = main(command)
    except SystemExit as end:  # argparse's own
        code = int(end.code or 0)
    said = capsys.readouterr().err
    assert code == 2, said
    assert "Traceback" not in said
    assert "unexpected" not in said
    assert 0 < len(said) <= LONGEST + 1  # the line break
    return said


@pytest.mark.parametrize(
    "setting",
    [
        *(f"{key}={2**70}" for key in ("rounds", "data.clients", "local.lr", "local.epochs", "data.separation")),
        *(f"seed={value}" for value in ("1.5", "true", "x", "[1]", "{a=1}", "nan", NINES)),
        *(f"{key}={value}" for key in ("data.separation", "local.lr") for value in ("nan", "1e400")),
        f"rounds={NINES}",
        "data.test_examples=9223372036854775807",
        "rounds=" + "[" * 50_000,
        "a." * 5000 + "b=1",
        "algorithm.name=['fedavg']",
        "algorithm.name=" + "x" * 5000,
    ],
)
def test_values_that_cannot_be_are_refused(here, capsys, setting):
    refused(capsys, "run", "a.toml", "--set", setting, "--out", "run")
    assert not (here / "run").exists()


@pytest.mark.parametrize("seed", [-1, 2**70])
def test_any_whole_number_is_a_seed(here, capsys, seed):
    assert main(["run", "a.toml", "--set", f"seed={seed}", "--out", "run"]) == 0
    assert main(["run", "a.toml", "--set", f"seed={seed}", "--out", "run", "--resume"]) == 0


@pytest.mark.parametrize(
    "lines",
    [
        *(f"seeds = {value}\n[runs.a]" for value in ("3", '"abc"', "[]", "{}", "[true]", "[1.5]", "[[1]]")),
        *(f"reference = {value}\n[runs.a]" for value in ("3", "[1]", "{}", '"b"')),
        *(f"runs = {value}" for value in ("1", "[]", "{}", "{ a = 3 }")),
        *(f"[runs.a]\nseed = {value}" for value in ('"x"', "1.5", "true")),
        "[runs.a.algorithm]\nname = ['fedavg']",
        "[runs.a.data]\nname = 3",
        "[runs.a]\ndata = 3",
    ],
)
def test_wrong_types_in_a_file_to_compare_are_refused(here, capsys, lines):
    (here / "b.toml").write_text(f"{PLAIN}{lines}\n")
    refused(capsys, "compare", "b.toml", "--out", "out")
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--over", f"local.lr={NINES},1"),
        ("--over", "data=1,2"),
        ("--over", "a.b.c=1,2"),
        ("--over", "." * 5000 + "=1,2"),
        ("--lr", "/etc/passwd,../../x"),
        ("--lr", "[[1]],[[2]]"),
        ("--lr", "0.1,0.2", "--seeds", "1.5"),
        ("--lr", "0.1,0.2", "--jobs", NINES),
        ("--lr", "0.1,0.2", "--jobs", "0"),
    ],
)
def test_what_cannot_be_tried_is_refused(here, capsys, options):
    refused(capsys, "tune", "a.toml", *options, "--out", "out")
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\0",
        b"x = " + b"[" * 100_000,
        b"rounds = " + NINES.encode(),
        b"#" * 10_000_001,
        b"a." * 50_000 + b"b = 1",
    ],
)
def test_files_that_are_no_configuration_are_refused(here, capsys, content):
    (here / "b.toml").write_bytes(content)
    refused(capsys, "run", "b.toml")


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, ".", "nowhere"])
def test_paths_that_cannot_be_are_refused(here, capsys, name):
    refused(capsys, "run", name)
    refused(capsys, "report", name)
    refused(capsys, "export", name, "--out", "model.pt")
    refused(capsys, "data", "show", "cifar10", "--data-dir", name)
    if name not in (".", "nowhere"):
        refused(capsys, "run", "a.toml", "--out", name)
        refused(capsys, "data", "show", "digits", "--picture", name)


@pytest.mark.parametrize("value", ["abc", "0", "-1", "²", "1.5", NINES, "10000"])
def test_a_number_of_cores_that_cannot_be_is_refused(monkeypatch, value):
    monkeypatch.setenv("FEDRELAY_CORES", value)
    with pytest.raises(BadInput, match="FEDRELAY_CORES must be a whole number from 1 to 9999") as error:
        cores()
    assert len(str(error.value)) < 300
    monkeypatch.setenv("FEDRELAY_CORES", "")
    assert cores() >= 1  # nothing is said


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.ENAMETOOLONG])
def test_a_disk_that_is_full_or_read_only_is_told(here, capsys, monkeypatch, number):
    def failing(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), str(here / "run" / "file"))

    monkeypatch.setattr(sys.modules["fedrelay.cli.main"], "follow", failing)  # the name is the function's too
    said = refused(capsys, "run", "a.toml", "--out", "run")
    assert os.strerror(number) in said


def test_a_message_is_cut_and_holds_nothing_that_a_terminal_obeys():
    assert shortened("short") == "short"
    cut = shortened("x" * 5000)
    assert (len(cut), cut[-1]) == (LONGEST, "…")
    assert shortened("a\x1b[2Jb\nc\0") == "a?[2Jb\nc?"


def test_exit_codes_tell_what_the_user_can_change():
    assert told(BadInput("no"))[1] == 2
    assert told(RunFailed("no"))[1] == 1
    assert [
        told(error)[1] for error in (MemoryError(), OverflowError("much"), RecursionError(), OSError(28, "full"))
    ] == [2] * 4
    assert told(KeyError("a mistake of ours"))[1] == 1


def test_a_number_that_no_array_takes_is_out_of_every_range():
    with pytest.raises(BadInput, match=r"rounds must be a number below 9e\+18, not one of 71 bits"):
        within("rounds", 2**70, least=1)


def test_one_mistyped_label_does_not_make_ten_million_classes():
    x, y = np.zeros((20, 3), dtype=np.float32), np.arange(20) % 2
    y[3] = 10_000_000
    with pytest.raises(BadInput, match="found a label 10,000,000 where only 3 different ones occur"):
        fr.data.from_arrays({"a": (x, y), "b": (x, y)})
