"""docs/one-shot.md: its tables are those of the code and of the studies; what was not run says so."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from fedrelay import BadInput, config
from fedrelay.algorithms import ALGORITHMS
from fedrelay.studies import compare
from fedrelay.studies.reproduce.one_shot_page import PANELS, PARTS, found, printed, renewed

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "one-shot.md"


def study(folder: Path, **accuracies: tuple[float, ...]) -> Path:
    """Invented results of the study of PACS."""
    rows = [
        {
            "name": name,
            "failed": [],
            "summaries": [
                {"mean": value, "seconds": 10.0, "messages": {"total": 5}, "bytes": {"total": 2_000_000}}
                for value in values
            ],
        }
        for name, values in accuracies.items()
    ]
    (folder / "one_shot_pacs").mkdir(parents=True)
    (folder / "one_shot_pacs" / "results.json").write_text(json.dumps(rows))
    return folder


def test_the_formulas_of_the_document_are_up_to_date():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert renewed(text) == text, "run: python -m fedrelay.studies.reproduce.one_shot_page docs/one-shot.md"
    assert "| 415.8 |" in text  # FedELMY 2024, Fig. 5


def test_a_study_that_was_run_has_its_table_and_all_others_stay_as_they_are(tmp_path):
    study(tmp_path, sequential=(0.3, 0.5), fedelmy=(0.5, 0.5), failed=())
    text = renewed(DOCUMENT.read_text(encoding="utf-8"), tmp_path)
    assert "| `sequential` | 40.0 % ± 14.1 % | 38.36 % | 5 | 2.0 | 10 |" in text
    assert "| `failed` | failed | – | – | – | – |" in text
    assert renewed(text) == text  # without the study at hand its table is kept
    plain = DOCUMENT.read_text(encoding="utf-8")
    for name in ("one_shot_cifar10", "one_shot_office"):
        place = plain[plain.index(f"<!-- {name} -->") :]
        assert place[: place.index("<!-- end -->")] in text


def test_the_order_and_what_the_parts_add_are_reckoned_from_the_table(tmp_path):
    parts = dict(zip(PARTS, ((0.45,), (0.46,), (0.44,)), strict=True))
    text = found("one_shot_pacs", study(tmp_path, sequential=(0.4,), fedelmy=(0.5,), metafed=(0.6,), **parts))
    assert "Order here: metafed > fedelmy > sequential. In the paper: fedelmy > sequential > metafed." in text
    assert "in points: the pool alone +5.0, with d1 +6.0, with d2 +4.0, with both +10.0." in text
    same = found("one_shot_pacs", study(tmp_path / "same", sequential=(0.4,), fedelmy=(0.5,)))
    assert "Order here: fedelmy > sequential. The paper's is the same." in same


def test_the_table_of_domains_comes_along(tmp_path):
    study(tmp_path, fedelmy=(0.5,))
    (tmp_path / "one_shot_pacs" / "results.md").write_text(
        "# x\n\n| run |\n\nAccuracy of every client:\n\n| run | a |\n"
    )
    assert found("one_shot_pacs", tmp_path).endswith("Accuracy of every client:\n\n| run | a |")


def test_a_document_without_a_place_is_refused():
    with pytest.raises(BadInput, match="the document has no place for traffic"):
        renewed("nothing")


@pytest.mark.parametrize("name", PANELS)
def test_the_study_has_every_method_and_equal_computation(name):
    path = ROOT / "experiments" / f"{name}.toml"
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    jobs, _ = compare.plan(config.read(path), Path("out"), [])
    by_name = {job.name: job.tables for job in jobs}
    assert {*printed(name), *PARTS, "maecho", "fedavg, one shot"} == set(by_name)
    assert len(jobs) == 3 * len(by_name)
    total = tables["local"]["epochs"]
    for run, one in by_name.items():
        algorithm, epochs = one["algorithm"], one["local"]["epochs"]
        assert algorithm["name"] in ALGORITHMS
        spent = epochs * algorithm.get("models", 1)
        if algorithm["name"] == "metafed":
            spent = algorithm["preparation"] + 2 * epochs
        assert spent == total, run
        assert one["engine"] == {"name": "inline"}
