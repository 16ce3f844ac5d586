"""The stories of docs/stories come true: their blocks run in an empty folder, and what they state is so."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from needs import needed, posix

import fedrelay

DOCS = Path(__file__).parents[1] / "docs"
HOSPITALS = ["Basel", "Graz", "Ulm", "Wien"]
pytestmark = posix  # the blocks are for sh


@dataclass(frozen=True)
class Told:
    """A story that was lived through: its folder, all that was printed, and what the page says would be."""

    folder: Path
    printed: str
    promised: tuple[str, ...]

    def number(self, pattern: str) -> float:
        """The one number that was printed in this place."""
        (found,) = re.findall(pattern, self.printed)
        return float(found.replace(",", ""))

    def clients(self, run: str) -> dict[str, Mapping[str, str]]:
        with (self.folder / "runs" / run / "clients.csv").open(newline="", encoding="utf-8") as file:
            return {row["name"]: row for row in csv.DictReader(file)}

    def missing(self) -> list[str]:
        """Lines of the page's output that were not printed, whatever their numbers and spaces."""
        printed = masked(" ".join(self.printed.split()))
        lines = [line for text in self.promised for line in text.splitlines() if line.strip()]
        return [line for line in lines if masked(" ".join(line.split())) not in printed]


def masked(text: str) -> str:
    return re.sub(r"[0-9][0-9.,]*|[░▒▓█]+", "#", text)


def lived(page: str, folder: Path) -> Told:
    """Save what is to be saved under its name, and run what is to be run, in the order of the page."""
    text = (DOCS / "stories" / page).read_text(encoding="utf-8")
    printed, promised = [], []
    for language, block in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL):
        if language == "sh":
            printed.append(shell(block, folder))
        elif language == "text":
            promised.append(block)
        else:
            named = re.match(r"# (\w+\.(?:py|toml))\n", block)
            assert named, f"{page}: a block of {language} does not say which file it is"
            (folder / named[1]).write_text(block, encoding="utf-8")
    return Told(folder, "\n".join(printed), tuple(promised))


def shell(commands: str, folder: Path) -> str:
    """What commands print, run by a shell that finds this Python and its `fedrelay`, and the sources under test."""
    beside = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    beside |= {"PYTHONPATH": str(Path(fedrelay.__file__).parents[1]), "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    ran = subprocess.run(
        ["sh", "-e", "-c", commands],
        cwd=folder,
        env=os.environ | beside,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def accuracies(told: Told, run: str) -> dict[str, float]:
    return {name: float(row["accuracy"]) for name, row in told.clients(run).items()}


# --- a table in every hospital


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Told:
    for module in ("pandas", "pyarrow", "sklearn"):
        needed(module)
    return lived("hospital-table.md", tmp_path_factory.mktemp("table"))


def test_the_hospitals_model_is_within_a_point_of_scikit_learn_on_the_pooled_table(table: Told) -> None:
    ours = table.number(r"are right: ([\d.]+)%")
    pooled = table.number(r"pooled: ([\d.]+)%")
    assert pooled > 80
    assert abs(ours - pooled) <= 1


def test_every_new_patient_is_predicted_and_those_with_a_label_are_judged(table: Told) -> None:
    with (table.folder / "predictions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with (table.folder / "new_patients.csv").open(newline="", encoding="utf-8") as file:
        labels = [row["readmitted"] for row in csv.DictReader(file)]
    assert [row["label"] for row in rows] == labels
    right = sum(row["label"] == row["prediction"] for row in rows)
    assert table.number(r"(\d+) of \d+ are right") == right
    assert table.number(r"\d+ of (\d+) are right") == sum(label != "" for label in labels)


def test_every_hospital_is_judged_by_name_on_its_own_rows(table: Told) -> None:
    rows = table.clients("hospitals")
    assert list(rows) == HOSPITALS
    for name, row in rows.items():
        lines = (table.folder / "hospitals" / f"{name}.csv").read_text().splitlines()[1:]
        labelled = sum(line.endswith(("yes", "no")) for line in lines)
        assert int(row["examples"]) + int(row["tested"]) == labelled
    assert min(accuracies(table, "hospitals").values()) > 0.7
    assert (table.folder / "tables" / "clients.csv").is_file()


def test_the_statistics_of_the_columns_are_counted_as_traffic_of_the_first_round(table: Told) -> None:
    rounds = (table.folder / "runs" / "hospitals" / "rounds.jsonl").read_text().splitlines()
    first, second = (json.loads(line)["describing"] for line in rounds[:2])
    assert first["messages"] == 2 * len(HOSPITALS)  # what each tells, and what it is told
    assert first["bytes"] > 0
    assert second == {"messages": 0, "bytes": 0}


def test_the_table_leaves_a_model_that_torch_reads_with_its_preparation(table: Told) -> None:
    run = table.folder / "runs" / "hospitals"
    assert set(torch.load(run / "model.pt", weights_only=True)) == {"head.weight", "head.bias"}
    prepared = json.loads((run / "preparation.json").read_text())
    assert [column["name"] for column in prepared["categories"]] == ["ward", "smoker"]
    assert (table.folder / "model.ts").is_file()
    assert (table.folder / "report.html").is_file()


# --- x-rays in folders


@pytest.fixture(scope="module")
def xrays(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return lived("x-rays.md", tmp_path_factory.mktemp("xrays"))


def test_x_rays_of_16_bits_are_told_apart_at_every_hospital(xrays: Told) -> None:
    found = accuracies(xrays, "xrays")
    assert list(found) == HOSPITALS
    assert min(found.values()) >= 0.85
    assert xrays.number(r"([\d.]+)% of 128 are right") >= 90


def test_new_x_rays_are_predicted_from_their_files(xrays: Told) -> None:
    with (xrays.folder / "predictions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 120
    assert sum(row["file"].split("/")[0] == row["prediction"] for row in rows) >= 0.9 * len(rows)


def test_the_x_rays_report_has_hospitals_confusion_and_calibration(xrays: Told) -> None:
    page = (xrays.folder / "report.html").read_text(encoding="utf-8")
    assert all(word in page for word in (*HOSPITALS, "onfusion", "alibration"))
    quality = json.loads((xrays.folder / "runs" / "xrays" / "quality.json").read_text())
    counts = np.array(quality["confusion"])
    tested = sum(int(row["tested"]) for row in xrays.clients("xrays").values())
    assert counts.shape == (2, 2)
    assert counts.sum() == tested == 128


def test_the_x_rays_keep_more_than_eight_bits(xrays: Told) -> None:
    most = float(re.findall(r"images are scaled from \S+ … ([\d.]+) to -1 … 1", xrays.printed)[0])
    assert most > 2500


# --- a frozen backbone


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Told:
    for module in ("pandas", "sklearn"):
        needed(module)
    return lived("frozen-backbone.md", tmp_path_factory.mktemp("frozen"))


def test_a_frozen_backbone_is_in_the_model_as_it_was_loaded(frozen: Told) -> None:
    model = torch.load(frozen.folder / "runs" / "frozen" / "model.pt", weights_only=True)
    backbone = torch.load(frozen.folder / "backbone.pt", weights_only=True)
    assert set(model) == {f"backbone.{name}" for name in backbone} | {"head.weight", "head.bias"}
    assert all(torch.equal(model[f"backbone.{name}"], tensor) for name, tensor in backbone.items())


def test_of_a_frozen_backbone_only_the_head_is_traffic(frozen: Told) -> None:
    head = 4 * 256 + 4
    assert f"{head:,} of " in frozen.printed
    assert set(re.findall(r"%, ([\d,]+) bytes", frozen.printed)) == {
        f"{4 * 2 * 4 * head:,}"
    }  # to and from four offices


def test_the_head_is_as_good_as_scikit_learn_on_the_pooled_features(frozen: Told) -> None:
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score
    from torch import nn

    digits = load_digits()
    late = digits.target >= 6
    backbone = nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
    )
    backbone.load_state_dict(torch.load(frozen.folder / "backbone.pt", weights_only=True))
    with torch.no_grad():
        features = backbone.eval()(torch.tensor(digits.images[late] / 16, dtype=torch.float32).unsqueeze(1)).numpy()
    pooled = cross_val_score(LogisticRegression(max_iter=1000), features, digits.target[late], cv=3).mean()
    assert list(accuracies(frozen, "frozen")) == HOSPITALS
    assert frozen.number(r"round 10: ([\d.]+)%") / 100 >= pooled - 0.04  # 143 digits are tested: a few of them


def test_the_model_of_a_frozen_backbone_reads_without_fedrelay(frozen: Told) -> None:
    assert "fedrelay" not in (frozen.folder / "use.py").read_text().replace("without fedrelay", "")
    read, truth = (re.findall(rf"{word}:\s+(\[.*\])", frozen.printed)[0] for word in ("read", "truth"))
    assert read == truth


# --- all of them


@pytest.mark.parametrize("story", ["table", "xrays", "frozen"])
def test_what_a_story_says_is_printed_is_printed(story: str, request: pytest.FixtureRequest) -> None:
    told: Told = request.getfixturevalue(story)
    assert told.promised
    assert told.missing() == []


def test_every_story_is_tested_and_linked() -> None:
    pages = {page.name for page in (DOCS / "stories").glob("*.md")}
    assert pages == {"hospital-table.md", "x-rays.md", "frozen-backbone.md"}
    for page in pages:
        assert f"](docs/stories/{page})" in (DOCS.parent / "README.md").read_text(encoding="utf-8")
        assert f"](stories/{page})" in (DOCS / "data.md").read_text(encoding="utf-8")
