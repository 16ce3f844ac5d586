from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
import tomli_w

from fedrelay import config
from fedrelay.cli import main
from fedrelay.cli.compare import told_of_grid
from fedrelay.errors import BadInput
from fedrelay.studies.attack_grid import grid, page
from fedrelay.studies.attack_grid.cells import BROKE_OFF, FAILED, Cells
from fedrelay.studies.attack_grid.crossing import NOBODY, NOTHING, asked, crossed
from fedrelay.studies.compare import Job
from fedrelay.system.console import PlainConsole

SPREAD = {"name": "share", "share": 0.34}
TABLES = {
    "rounds": 2,
    "seeds": [0, 1],
    "data": {"name": "digits", "clients": 6, "share": 0.2, "partition": {"name": "dirichlet", "alpha": 100.0}},
    "model": {"name": "mlp", "hidden": [4]},
    "algorithm": {"fraction": 1.0},
    "engine": {"name": "inline"},
    "methods": {
        "star": {"algorithm": {"name": "fedavg"}},
        "chains": {
            "algorithm": {"name": "fedseq", "max_clients": 3},
            "defences": {"shorter": {"algorithm": {"max_clients": 2}}},
        },
    },
    "defences": {"krum": {"algorithm": {"merge": {"name": "krum", "suspects": 1}}}},
    "attacks": {
        "flip": {"name": "sign_flip", "scale": 9.0, "who": SPREAD},
        "quiet": {"name": "sign_flip", "strength": 0.0, "who": SPREAD},
        "door": {"name": "backdoor", "who": "position"},
    },
}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("grid")
    return grid.carry_out(TABLES, out, PlainConsole(), name="grid.toml"), out


def test_a_cell_is_the_run_that_one_would_write_down_by_hand(done, tmp_path):
    cells, _ = done
    rest = {key: TABLES[key] for key in ("rounds", "data", "model", "engine")}
    algorithm = {"name": "fedseq", "fraction": 1.0, "max_clients": 2}
    tables = {**rest, "seed": 1, "algorithm": algorithm, "attack": TABLES["attacks"]["flip"]}
    recorder = config.build(tables, None).record(tmp_path / "by hand")
    list(recorder.run())
    assert cells.found["chains", "flip", "shorter"][1].params_sha256 == recorder.summary().params_sha256


def test_what_is_lost_is_measured_against_the_same_seed_without_attack_and_defence(done):
    cells, _ = done
    honest, attacked = (cells.found["star", attack, NOTHING] for attack in (NOBODY, "flip"))
    lost = [before.accuracy - after.accuracy for before, after in zip(honest, attacked, strict=True)]
    assert cells.cell(("star", "flip", NOTHING)).lost == pytest.approx(lost)
    for defence in (NOTHING, "krum"):  # an attack without strength is none, to the bit
        honest, quiet = (cells.found["star", attack, defence] for attack in (NOBODY, "quiet"))
        assert [one.params_sha256 for one in honest] == [one.params_sha256 for one in quiet]


def test_a_defence_whose_condition_fails_says_so_in_its_cells_and_spoils_no_other(done):
    cells, out = done
    refused = cells.cell(("chains", "flip", "krum"))
    assert refused.value is None
    assert "n ≥ 2f + 3" in refused.why
    assert "this run has 2" in refused.why
    assert cells.cell(("star", "flip", "krum")).value is not None
    assert ("star", NOBODY, "shorter") not in cells.found  # that defence is the other method's
    html = (out / "report.html").read_text(encoding="utf-8")
    assert html.count("n ≥ 2f + 3") == 4 + 1 + 1  # four cells and that of the backdoor point at one remark
    assert ">(1)</td>" in html
    text = (out / "results.md").read_text(encoding="utf-8")
    assert "|  | no defence | krum |\n" in text
    assert "|  | no defence | krum | shorter |\n" in text


def test_a_condition_that_stops_holding_in_a_later_round_is_told_in_its_cell_too(tmp_path):
    growing = {"name": "fedseq2par", "fraction": 1.0, "growth": {"name": "linear", "beta": 3, "reach": 6, "by": 3}}
    rest = {key: TABLES[key] for key in ("rounds", "data", "model", "engine")}
    tables = {**rest, "rounds": 3, "algorithm": {**growing, "defence": {"agreement": 0.0}}}
    for _ in range(2):  # and again when the grid goes on
        why = grid.attempt(Job("one", 0, tables, tmp_path / "one"), None)
        assert "two chains are compared" in why
    with pytest.raises(BadInput, match="rounds must be at least 2"):
        grid.attempt(Job("one", 0, {**tables, "rounds": 1}, tmp_path / "one"), None)


def test_the_command_does_not_do_again_what_is_done_nor_replaces_other_results(done, tmp_path, capsys):
    _, out = done
    file = tmp_path / "grid.toml"
    file.write_text(tomli_w.dumps(TABLES), encoding="utf-8")
    before = {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")}
    told = (out / "results.json").read_bytes()
    assert main(["compare", str(file), "--out", str(out)]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")}
    assert told == (out / "results.json").read_bytes()
    shown = capsys.readouterr().out
    assert "shorter" in shown
    assert "report.html" in shown
    file.write_text(tomli_w.dumps({**TABLES, "seeds": [0]}), encoding="utf-8")
    assert main(["compare", str(file), "--out", str(out)]) == 2
    assert "holds results of something else" in capsys.readouterr().err


def test_backdoors_have_a_map_of_their_own(done):
    cells, out = done
    told = json.loads((out / "results.json").read_text(encoding="utf-8"))
    (door,) = [row for row in told if (row["method"], row["attack"], row["defence"]) == ("star", "door", NOTHING)]
    success = [summary["attacked"]["backdoor_success"] for summary in door["summaries"]]
    assert cells.cell(("star", "door", NOTHING)).success == pytest.approx(success)
    sheet = page.backdoors(cells, "star", [])
    assert [name for name, _ in sheet.lines] == ["door"]
    assert sheet.lines[0][1][0].figure == f"{100 * sum(success) / 2:.1f}"


def test_what_a_defence_is_worth_is_the_mean_and_the_worst_of_the_attacks_of_one_size(done):
    summary, _ = done[0].found["star", NOBODY, NOTHING]
    measured = {
        ("star", NOBODY, NOTHING): 0.9,
        ("star", NOBODY, "krum"): 0.8,
        ("star", "flip", NOTHING): 0.5,
        ("star", "flip", "krum"): 0.7,
        ("star", "quiet", NOTHING): 0.9,
        ("star", "quiet", "krum"): 0.9,
    }
    attacks = {name: TABLES["attacks"][name] for name in ("flip", "quiet")}
    few = crossed({**TABLES, "attacks": attacks, "methods": {"star": TABLES["methods"]["star"]}})
    cells = Cells(few, {place: (replace(summary, mean=value),) for place, value in measured.items()})
    nothing, krum = cells.worth("star")
    who = "34 % of the clients"
    assert nothing.lost[who] == pytest.approx((0.4 + 0.0) / 2)
    assert krum.lost[who] == pytest.approx((0.2 + 0.0) / 2)
    assert krum.cost == pytest.approx((0.1,))
    assert krum.worst[who][0] == "flip"
    heads, (_, line) = page.worth_table(cells, "star")
    assert heads[3] == "left on the mean of 2 attacks, 34 % of the clients"
    assert line == ["krum", "10.0", "1.00 ×", "80.0", "flip (70.0)"]


def test_only_a_run_that_diverges_under_attack_counts_as_nothing_left(done, capsys, tmp_path):
    cells, _ = done
    attacked, quiet = ("star", "flip", "krum"), ("star", NOBODY, "krum")
    honest = [one.mean for one in cells.found["star", NOBODY, NOTHING]]

    def after(place, why):
        return Cells(cells.grid, {**cells.found, place: (why, why)})

    broken = after(attacked, f"{BROKE_OFF}round 2: every chain failed")
    assert broken.cell(attacked).lost == pytest.approx(honest)
    assert "counts as 0" in page.markdown(broken, "grid.toml")
    assert not broken.failed
    for other in (after(attacked, f"{FAILED}a worker was lost"), after(quiet, f"{BROKE_OFF}every chain failed")):
        ((place, why),) = other.failed.items()
        assert other.cell(place).value is None
        assert "counts as 0" not in page.markdown(other, "grid.toml")
        assert told_of_grid(other, tmp_path) == 1
        assert f"star · {place[1]} · krum {why}" in capsys.readouterr().err
    assert told_of_grid(broken, tmp_path) == 0


def test_a_run_that_stops_says_whether_its_models_diverged(tmp_path):
    tables = {key: TABLES[key] for key in ("rounds", "data", "model", "engine")}
    divided = {"name": "dnc", "suspects": 2, "cut": 2.0, "iterations": 50, "sample": 1}  # looks at one number each
    runs = [
        ({"name": "fedavg"}, 1e30, f"{BROKE_OFF}round 1: every chain failed"),
        ({"name": "fedavg", "fraction": 1.0, "merge": divided}, 0.1, f"{FAILED}round 1: dnc left out every chain"),
    ]
    for number, (algorithm, lr, told) in enumerate(runs):
        job = Job("one", 0, {**tables, "algorithm": algorithm, "local": {"lr": lr}}, tmp_path / str(number))
        assert grid.attempt(job, None).startswith(told)


def test_means_over_different_attacks_are_said_not_to_compare(done):
    cells, _ = done
    assert any("(2 attacks by 34 % of the clients, 1 attack by position)" in note for note in page.notes(cells))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"defences": {"krum": {"algorithm": {"merge": {"name": "krum", "suspect": 1}}}}}, "grid.toml, defences.krum"),
        ({"attacks": {"flip": {"name": "sign_flop"}}}, "grid.toml, attacks.flip"),
        ({"attack": {"name": "lazy"}}, "use \\[attacks.NAME\\]"),
        ({"methods": {}}, "a grid needs methods"),
        ({"attacks": {}}, "a grid needs attacks"),
        ({"defences": {NOTHING: {}}}, "is there without being said"),
        ({"attacks": {"flip": "sign_flip"}}, "must be tables"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_table_before_anybody_trains(tmp_path, changes, why):
    tables = {**copy.deepcopy(TABLES), **changes}
    with pytest.raises(BadInput, match=why):
        grid.carry_out(tables, tmp_path / "out", PlainConsole(), name="grid.toml")
    assert not (tmp_path / "out").exists()


def test_runs_stand_side_by_side_or_are_crossed():
    assert asked(TABLES)
    assert not asked({"runs": {}})
    with pytest.raises(BadInput, match="leave one of them out"):
        asked({**TABLES, "runs": {"one": {}}})
