"""The folders of runs in a study: names that every system takes, and no way out of the study's folder."""

from __future__ import annotations

import pytest
from needs import posix

from fedrelay import BadInput
from fedrelay.cli import main
from fedrelay.studies.compare import plan
from fedrelay.studies.names import check_name, folder_name
from fedrelay.studies.trials import trials_of

FILE = """
rounds = 1
[data]
name = "digits"
clients = 4
[model]
name = "logistic"
[algorithm]
name = "fedavg"
[engine]
name = "inline"
[runs.one]
"""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "has nothing that could name a folder"),
        (".", "has nothing"),
        ("..", "has nothing"),
        ("../", "has nothing"),
        ("\0", "has nothing"),
        ("n" * 201, r"is too long \(201 bytes, at most 200\)"),
        ("ä" * 101, "is too long"),
        ("\x1b[31mred", "has control characters"),
        ("con", "is reserved on Windows"),
        ("NUL.txt", "is reserved on Windows"),
        ("Com1", "is reserved on Windows"),
        ("fedavg.", "ends with a point"),
        ("checkpoint", "is the name of one of our own files"),
        ("Report.html", "is the name of one of our own files"),
        ("rounds.jsonl", "is the name of one of our own files"),
        ("results.json", "is the name of one of our own files"),
    ],
)
def test_a_run_that_no_folder_can_be_named_after_is_refused(tmp_path, name, why):
    with pytest.raises(BadInput, match=rf"run .* {why}.*: give it another name"):
        plan({"runs": {"good": {}, name: {}}}, tmp_path, ())


@pytest.mark.parametrize("name", ["fedavg", "lr 0.03, fraction 1", "fedseq+fedprox", "console", "com10", "…ä", "_x_"])
def test_other_names_are_taken_as_before(tmp_path, name):
    (job,), _ = plan({"runs": {name: {}}}, tmp_path, ())
    assert job.folder.parent == tmp_path


@pytest.mark.parametrize("name", ["a/../../b", "/etc/passwd", r"C:\x", 'a<b>c:"d|e?f*g', "a\nb"])
def test_what_would_lead_elsewhere_becomes_an_underscore(tmp_path, name):
    made = check_name(folder_name(name), "it")
    assert not set(made) & set('<>:"/\\|?*\n')
    assert (tmp_path / made).resolve().parent == tmp_path.resolve()


def test_a_trial_is_not_named_after_one_of_our_files(tmp_path):
    with pytest.raises(BadInput, match="own files"):
        trials_of({"algorithm.merge": ["checkpoint", "median"]}, tmp_path)


@posix
@pytest.mark.parametrize(("command", "name"), [("compare", "one"), ("tune", "0.1")])
def test_a_study_does_not_write_through_a_link_in_the_place_of_a_run(tmp_path, capsys, command, name):
    (tmp_path / "file.toml").write_text(FILE if command == "compare" else FILE.replace("[runs.one]", ""))
    (tmp_path / "outside").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "outside")
    more = [] if command == "compare" else ["--lr", "0.1,0.2"]
    assert main([command, str(tmp_path / "file.toml"), "--out", str(tmp_path / "out"), *more]) == 2
    assert "is a link; nothing was overwritten" in capsys.readouterr().err
    assert list((tmp_path / "outside").iterdir()) == []
