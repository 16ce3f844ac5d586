"""The examples of the README run as they stand."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fedrelay import config

README = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_examples_run_one_after_another(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    examples = blocks("python")
    assert len(examples) >= 2
    for example in examples:
        exec(compile(example, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "accuracy" in printed
    assert (tmp_path / "runs" / "mine" / "summary.json").is_file()


@pytest.mark.parametrize("example", blocks("toml"))
def test_the_configuration_example_builds(example):
    assert config.build(tomllib.loads(example)).name == "fedseq"


@pytest.mark.parametrize("page", ["data.md"])
def test_the_python_examples_of_the_docs_run(page):
    text = (Path(__file__).parent.parent / "docs" / page).read_text()
    examples = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert examples
    for example in examples:
        exec(compile(example, page, "exec"), {})
