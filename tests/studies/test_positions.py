from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fedrelay.studies import positions
from fedrelay.studies.compare import compare
from fedrelay.studies.compared import Row
from fedrelay.system.console import PlainConsole
from fedrelay.tasks import Headline

TABLES = {
    "rounds": 2,
    "seeds": [0, 1],
    "data": {"name": "digits", "clients": 6, "share": 0.2, "partition": {"name": "dirichlet", "alpha": 100.0}},
    "model": {"name": "mlp", "hidden": [4]},
    "algorithm": {"name": "fedseq", "max_clients": 3, "fraction": 1.0},
    "engine": {"name": "inline"},
    "runs": {
        "honest": {},
        "last": {"attack": {"name": "sign_flip", "scale": 9.0, "who": "position"}},
        "first": {"attack": {"name": "sign_flip", "scale": 9.0, "who": {"name": "position", "position": -3}}},
        "swapped": {"attack": {"name": "labels", "who": {"name": "share", "share": 0.5}}},
    },
}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("compared")
    rows, _ = compare(TABLES, out, PlainConsole(), name="positions.toml")
    return rows, out


def tables():
    base = {key: value for key, value in TABLES.items() if key not in ("runs", "seeds")}
    return {name: {**base, **changes} for name, changes in TABLES["runs"].items()}


def test_damage_is_what_is_lost_of_the_honest_run_seed_by_seed(done):
    rows = {row.name: row for row in done[0]}
    found = positions.damages(done[0], tables())
    assert [(one.attack, one.after) for one in found] == [("sign flip, scale 9.0", 0), ("sign flip, scale 9.0", 2)]
    for name, one in zip(("last", "first"), found, strict=True):
        pairs = zip(rows["honest"].summaries, rows[name].summaries, strict=True)
        assert one.lost == pytest.approx([before.accuracy - after.accuracy for before, after in pairs])


def test_a_comparison_has_the_table_and_the_picture(done):
    _, out = done
    text = (out / "results.md").read_text(encoding="utf-8")
    assert "| attack | the last | 2 follow |" in text
    assert "attacked accuracy" in text.splitlines()[2]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Damage by position in the chain" in page
    assert "Among attackers" in page
    (swapped,) = [row for row in json.loads((out / "results.json").read_text()) if row["name"] == "swapped"]
    assert all(summary["attacked"]["visits"] == 6 for summary in swapped["summaries"])


def test_no_strength_is_honest_and_rows_with_lost_seeds_are_left_out(done):
    rows, known = list(done[0]), tables()
    known["honest"] = {**known["honest"], "attack": {"name": "lazy", "strength": 0}}
    assert len(positions.damages(rows, known)) == 2
    broken = [replace(row, failed=("why",)) if row.name == "last" else row for row in rows]
    assert [one.after for one in positions.damages(broken, known)] == [2]
    assert positions.damages([row for row in rows if row.name != "honest"], known) == []


def test_places_from_the_beginning_and_no_attack_say_nothing_of_the_end():
    forward = {"attack": {"name": "lazy", "who": {"name": "position", "position": 2}}}
    assert positions.place_of(forward) is None
    assert positions.place_of({}) is None
    assert positions.place_of({"attack": {"name": "lazy", "who": "position"}}) == -1


def test_nothing_is_written_where_nobody_attacks_from_a_place():
    assert positions.table([], Headline()) == ""
    assert positions.picture([positions.Damage("lazy", 0, (0.1,))], Headline()) == []
    assert positions.damages([Row("honest", (), ())], {"honest": {"algorithm": {"name": "fedavg"}}}) == []
