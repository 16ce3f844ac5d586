"""The examples of the README and the docs run as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from fedrelay import cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = ["choose-a-method.md", "concepts.md", "data.md", "groups.md", "sampling.md", "tasks.md"]
"""Docs with Python in them; the others have tests of their own."""


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiment.toml").write_text(blocks("toml")[0])
    return tmp_path


def test_the_python_examples_run_one_after_another(folder, capsys):
    names: dict[str, object] = {}
    examples = blocks("python")
    assert len(examples) >= 3
    for example in examples:
        exec(compile(example, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "accuracy" in printed
    assert (folder / "runs" / "mine" / "summary.json").is_file()
    assert (folder / "report.html").is_file()


def test_the_commands_run_one_after_another(folder, capsys):
    commands = [line.split("#")[0] for block in blocks("sh") for line in block.splitlines()]
    commands = [command for command in commands if command.startswith("fedrelay")]
    assert len(commands) >= 5
    for command in commands:
        words = shlex.split(command)[1:]
        quick = ["--set", "rounds=4"] if words[0] == "run" else []
        assert cli.main([*words, *quick]) == 0, (command, capsys.readouterr().err)
    assert (folder / "report.html").is_file()


@pytest.mark.parametrize("page", PAGES)
def test_the_python_examples_of_the_docs_run(page):
    examples = blocks("python", (ROOT / "docs" / page).read_text())
    assert examples
    for example in examples:
        exec(compile(example, page, "exec"), {})


def test_the_examples_of_using_the_model_run_one_after_another(folder, capsys):
    page, names = (ROOT / "docs" / "use-the-model.md").read_text(), dict[str, object]()
    (folder / "patients.csv").write_text("first,second,label\n2.0,-1.0,ill\n0.0,0.0,well\n")
    np.savez(folder / "measured.npz", x=np.array([[2.0, -1.0]]), y=np.array(["ill"]))
    for example in blocks("python", page):
        exec(compile(example, "use-the-model.md", "exec"), names)
    assert "['ill']" in capsys.readouterr().out
    for command in [line.split("#")[0] for block in blocks("sh", page) for line in block.splitlines()]:
        assert cli.main(shlex.split(command)[1:]) == 0, (command, capsys.readouterr().err)
    predictions = (folder / "predictions.csv").read_text().splitlines()
    assert [line.split(",")[1:3] for line in predictions[1:]] == [["ill", "ill"], ["well", "well"]]
    assert (folder / "model.onnx").is_file()
    assert (folder / "tables" / "clients.csv").is_file()


def test_no_page_has_python_that_no_test_runs():
    found = {page.name for page in (ROOT / "docs").glob("*.md") if blocks("python", page.read_text())}
    assert found == {*PAGES, "extend.md", "four-hospitals.md", "networks.md", "start.md", "use-the-model.md"}


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/**/*.md"))]
)
def test_every_link_to_a_file_leads_somewhere(page):
    links = re.findall(r"\]\((?!https?://)([^)#]+)", (ROOT / page).read_text())
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


def test_the_page_about_extending_is_linked_from_where_one_looks_for_it():
    assert "](docs/extend.md)" in README
    assert "](docs/extend.md)" in (ROOT / "CONTRIBUTING.md").read_text()
