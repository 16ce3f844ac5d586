"""docs/four-hospitals.md comes true: its files are written, its commands run, and what it states is so."""

from __future__ import annotations

import json
import re
import runpy
import shlex
from pathlib import Path

import pytest
from machines import Site
from needs import needed, posix
from scenes import free_port

from fedrelay.cli.main import main

pytestmark = posix
PAGE = Path(__file__).parents[2] / "docs" / "four-hospitals.md"
HOSPITALS = ["centre", "city", "screening", "village"]


@pytest.fixture
def printed(site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """All that was printed by the page's commands, each in a process of its own where it is to go on."""
    for module in ("pandas", "sklearn"):
        needed(module)
    monkeypatch.chdir(site.folder)
    monkeypatch.setenv("COLUMNS", "120")
    text = PAGE.read_text(encoding="utf-8").replace("8470", str(free_port()))
    for language, block in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL):
        if language in ("python", "toml"):
            (site.folder / block.split()[1]).write_text(block, encoding="utf-8")
        elif language == "sh":
            for line in block.splitlines():
                obey(site, shlex.split(line))
    return capsys.readouterr().out + "".join(machine.said for machine in site.machines)


def obey(site: Site, words: list[str]) -> None:
    """One line of a shell."""
    if words == ["wait"]:
        assert [machine.wait() for machine in site.machines] == [0] * 5, site.machines[0].said
    elif words[0] == "python":
        runpy.run_path(words[1])
    elif words[-1] == "&":
        site.start(*words[1:-1])
    else:
        assert main(words[1:]) == 0, words


def test_hospitals_that_share_no_diagnosis_learn_one_model_as_good_as_on_one_table(site: Site, printed: str) -> None:
    alone = {name: float(found) for name, found in re.findall(r"(\w+): \d+ patients.*right in ([\d.]+)%", printed)}
    run = site.folder / "runs" / "hospitals"
    together = 100 * json.loads((run / "summary.json").read_text(encoding="utf-8"))["final_accuracy"]
    assert sorted(alone) == sorted([*HOSPITALS, "table"])
    assert alone["screening"] < 65  # it has seen no malignant tumour: all it can do is to call everything benign
    assert together > alone["screening"] + 30
    assert together >= alone["table"] - 1.5  # one of 284 is a third of a point
    assert together > max(alone["centre"], alone["village"])
    sent = (site.folder / "homes" / "centre" / "sent.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["model"] for line in sent[1:]} == {2 * 30 + 2}
    shown = re.findall(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    spaced = " ".join(printed.split())
    missing = [line for text in shown for line in text.splitlines() if masked(line) not in masked(spaced)]
    assert shown
    assert missing == []


def masked(text: str) -> str:
    """Without what differs from machine to machine."""
    return re.sub(r"[0-9][0-9.,]*", "#", " ".join(text.split()))
